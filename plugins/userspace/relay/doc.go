// SPDX-License-Identifier: Apache-2.0

// Package relay forwards TCP connections and UDP flows from the addresses of Services to their endpoints. It is the engine
// of the userspace dataplane. It must not know the rules that redirect packets to its sockets, the roles of a dataplane, or
// how updates reach one. So it can be read, tested and measured alone.
//
//	client ──▶ Socket ──▶ Target: a Service and a frontend ──▶ endpoint
//	       ◀─────────── two pumps (TCP) or a flow (UDP) ───────▶
//
// # Use
//
// New returns a Relay, and NewService a Service whose value Set replaces. Listen opens a Socket at an address that the
// machine has. Redirected opens Sockets for other addresses, from which rules in the kernel redirect packets to this
// process. A Socket accepts nothing before Serve sets its Target. Another Serve replaces the Target without closing the
// Socket. Drain stops the Socket, but its UDP flows continue; Close ends them, too. Established TCP connections outlive
// their Socket: only Stop ends them.
//
// A Socket has a Target, a Target has a Service, and a Service has an immutable sdk.Service. Each is an atomic pointer that a
// new connection reads once, so no connection waits for an update. Of package sdk only the values that describe Services are
// used, because sdk.Service.Route alone decides which endpoints a client may have.
//
// # Goroutines
//
// Each goroutine is a member of the Relay's group. Stop closes what they wait for, and returns when all have ended.
//
//   - TCP: one per listener, and two per connection, one for each direction.
//   - UDP: one per socket after its first Serve, and one per flow.
//
// Each borrows a buffer only while there is something to read.
//
// # Limits
//
//   - Endpoints see an address of this machine, not the client's.
//   - At most 4 endpoints are tried for a connection, within 3.75 s.
//   - At most 16,384 UDP flows. Datagrams of further clients are dropped and counted.
//   - At most 65,536 clients of a Service keep an endpoint by affinity.
//   - Connections end with the process. Each has two descriptors.
//   - On Windows a port belongs to one socket, so another process can listen there only after the socket is closed.
//     SO_REUSEADDR would let any program of the machine take the port.
package relay
