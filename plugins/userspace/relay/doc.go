// SPDX-License-Identifier: Apache-2.0

// Package relay carries TCP connections and UDP flows from the addresses at which
// Services are reached to their endpoints. It is the engine of the userspace dataplane,
// and a package of its own so that it can be read, tested and measured without the rest:
// it does not know the rules that lead callers to its sockets, the roles of a dataplane,
// or how updates reach one.
//
//	client ──▶ Socket ──▶ Target: a Service and a frontend ──▶ endpoint
//	       ◀─────────── two pumps (TCP) or a flow (UDP) ───────▶
//
// # Use
//
// New makes a Relay, NewService a Service whose value Set replaces. Listen opens a
// Socket at an address that the machine has; Redirected opens Sockets for addresses that
// it does not have, where rules of the kernel redirect packets to this process. A Socket
// accepts nothing until Serve gives it a Target. Serve again switches it without closing
// it, Drain stops it and lets UDP flows end, Close ends them too. TCP connections that
// are established outlive their Socket; only Stop ends them.
//
// A Socket has a target, a target has a Service, a Service has an immutable sdk.Service:
// each is one atomic pointer, read once by each new connection. So a change of a Service
// takes no lock that connections wait for.
//
// The values that describe Services (Service, Frontend, Caller, Node, AffinityEntry) are those of
// package sdk, because sdk.Service.Route is the one place that says which endpoints a
// caller may have; types of our own would need a second copy of it. Nothing else of the
// contract is used here: no update, state, role or refusal.
//
// # Goroutines
//
// All are members of the Relay's group. Stop closes what each of them waits for, and
// returns when the last has ended.
//
//   - one for each TCP listener, and two for each connection: one for each direction.
//   - one reader for each UDP socket from its first Serve on, and one for each flow.
//
// Each reads into a buffer that it borrows when there is something to read, so a connection
// that waits has none.
//
// # Windows
//
// There a port belongs to one socket: another process can listen on it only after the socket is
// closed. SO_REUSEADDR would let any program of the machine take the port.
//
// # Limits
//
//   - Endpoints see an address of this machine, not the client's.
//   - At most 4 endpoints are tried for a connection, within 3.75 s.
//   - At most 16,384 UDP flows; datagrams of further clients are dropped and counted.
//   - At most 65,536 clients of a Service keep an endpoint by affinity.
//   - Connections end with the process. Each holds two descriptors.
package relay
