// SPDX-License-Identifier: Apache-2.0

/*
Package wire carries the vocabulary of package sdk between a host and a dataplane
in another process. Both ends speak [sdk.Dataplane]; what lies between is here and
nowhere else, so no other package knows gRPC.

	host process                                   plugin process
	feed ─▶ Remote ══════════════════════════════▶ Serve ─▶ sdk.Dataplane ─▶ kernel
	          │      gRPC, unix socket, mutual TLS   │
	          │      Attach: the same, by address    ├─ one call at a time
	          │                                      ├─ the session's fence
	          ◀── Vitals ─────────────────────────── │
	          ◀── stderr: the log ────────────────── └─ the log queue

A plugin's main is one call:

	func main() { wire.Serve(description, dataplane) }

The host's end is a [Remote]: [Dial] makes one for a process that the caller knows, [Attach] for whatever runs with
--listen at an address ([At]). [Local] joins the two ends in one process, for tests. How a host starts and ends the
process is not here but in host/launch, which no plugin needs.

# What each end may rely on

Every call of a Remote returns by its deadline, whatever the plugin does: stopped, hung, ended, or sending what makes no
sense. It has one even if its context has none. A connection that is lost is not made again.

A plugin that a host launched ends with that host: its stdin is its lifeline. It never blocks because its log is not
read: lines that find no room in the queue are dropped and counted.

One host at a time: each Configure begins a session, and calls of an older one get [ErrFenced], also those that are
running.

# Access

A launched plugin and its host know each other by certificates made for this one launch (go-plugin's AutoMTLS), and the
socket's directory is open to its owner only. A plugin that listens for itself has no certificates: there both ends check
that the other runs as the same user, or as root.
*/
package wire
