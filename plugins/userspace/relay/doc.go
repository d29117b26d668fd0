// SPDX-License-Identifier: Apache-2.0

// Package relay carries TCP connections and UDP flows from the addresses at which
// Services are reached to their endpoints. It is the engine of the userspace dataplane,
// and a package of its own so that it can be read, tested and measured without the rest:
// it does not know the rules that lead callers to its sockets, the roles of a dataplane,
// or how updates reach one.
//
//	client ──▶ Socket ──▶ Target: a Service and a frontend ──▶ endpoint
//	       ◀───────────── pair (TCP) or flow (UDP) ────────────▶
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
//   - Linux: one event loop for each processor (GOMAXPROCS), started by the first TCP
//     listener. A loop owns its share of all connections, so these need no lock.
//   - Windows: one poller for all TCP listeners, started by the first, and two for each connection.
//   - elsewhere: one for each TCP listener, and two for each connection.
//   - one reader for each UDP socket from its first Serve on, and one for each flow.
//
// # Windows
//
// There a port is one socket's. Where two sockets have it by SO_REUSEADDR, which of them a client
// comes to is not defined, and a program that asks for the same could have clients, too; a listener
// that is closed before the next one opens refuses clients meanwhile, and resets those that wait in it.
// So a process hands its TCP listeners over to the next one (HandOver, Adopt: WSADuplicateSocket),
// and both accept until it closes them.
//
// Package net cannot accept by such a socket: it puts each into a completion port, which is of
// one process, and the socket of both is in that port for good. So a poller (WSAPoll) sees which
// listeners have clients, and accepts them. To endpoints package net connects as elsewhere.
//
// # Limits
//
//   - Endpoints see an address of this machine, not the client's.
//   - At most 4 endpoints are tried for a connection, within 3.75 s.
//   - At most 16,384 UDP flows; datagrams of further clients are dropped and counted.
//   - At most 65,536 clients of a Service keep an endpoint by affinity.
//   - Connections end with the process. Each holds two descriptors.
package relay
