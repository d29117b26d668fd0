// SPDX-License-Identifier: Apache-2.0

/*
Package wire connects a host with a dataplane in another process. Both sides use
[sdk.Dataplane]; the protocol between them is an implementation detail of this
package, and no other package uses gRPC.

	host process                                   plugin process
	feed ─▶ Remote ══════════════════════════════▶ Serve ─▶ sdk.Dataplane ─▶ kernel
	          │      gRPC, unix socket, mutual TLS   │
	          │      Attach: the same, by address    ├─ one call at a time
	          │                                      ├─ the session's fence
	          ◀── Vitals ─────────────────────────── │
	          ◀── stderr: the log ────────────────── └─ the log queue

A plugin's main is one call:

	func main() { wire.Serve(description, dataplane) }

The host's side is a [Remote]: [Dial] returns one for a process that the caller knows, [Attach] for a plugin that was
started with --listen at an address ([At]). [Local] connects both sides in one process, for tests. Package host/launch,
which no plugin needs, starts and ends processes.

# Guarantees

Every call of a Remote returns by its deadline, even if the plugin is stopped, hangs, ends or sends garbage. A call has a
deadline even if its context has none. A Remote never reconnects.

A plugin that a host launched ends when that host ends, because the host holds the other end of the plugin's stdin. A
plugin never blocks if its log is not read: lines that do not fit into the queue are dropped and counted.

A plugin has one host at a time: each Configure begins a session, and calls of older sessions get [ErrFenced], even calls
in progress.

# Access

A launched plugin and its host authenticate with certificates that are created for this launch (go-plugin's AutoMTLS),
and the socket's directory is accessible to its owner only. A plugin that was started with --listen has no certificates:
both sides check that the other one runs as the same user or as root.
*/
package wire
