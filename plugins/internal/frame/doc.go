// SPDX-License-Identifier: Apache-2.0

/*
Package frame implements the parts of a dataplane that do not depend on how its mode writes
to the kernel. A mode provides a [Mode], which opens sessions, and one or more values of
[Family], each of which knows the desired and the installed state of one or both IP families
and the difference between them. Most modes get a Family from package reconcile. The frame
provides everything else that the contract of package sdk asks for:

	line  0  sessions: an update of another session, or a gap, is answered with ErrResync
	line  3  after a failed or interrupted call the kernel is read before it is written
	line  4  a Service that is refused keeps what served it
	line  5  only changed Services are rendered
	line  6  nothing is written before the first update; the rules of former processes are adopted
	line  7  roles, from any to any; connections are counted while draining
	line  8  one writer: a call without the lock changes nothing and returns Busy
	line  9  UDP flows without a serving endpoint are deleted
	line 11  calls are serialized; a call of the host interrupts background work
	line 12  drift: probes and repairs; the writer's lock is released without a host

The frame never writes to the kernel itself and never looks into a P. To write a mode, start
with [Mode] and [Family], and with the example in package reconcile (mode_linux_test.go).

# One update

	Sync ─▶ becomeWriter            take the writer's lock; Busy while another process has it
	     ─▶ sdk.State.Apply         find the touched Services
	     ─▶ Family.Adopt            list: read the kernel, if its state is unknown and for a Full
	     ─▶ Family.Node, Role       if they changed
	     ─▶ Family.Want             render each touched Service into a P. Pure
	     ─▶ Family.SetDesired       store the Ps by name. Memory only
	     ─▶ Family.Plan             compare desired and installed. Pure
	     ─▶ Plan.Apply              write the difference
	     ─▶ sdk.State.Confirm       everything but the Services that failed

A P is the form that one Service has in a family: chains and entries, virtual servers, or
sockets. The zero P stands for a Service that does not exist.

# Sessions, roles and the lock

Configure begins a session and changes nothing (dataplane.go). The monitor then reads the role
that the kernel shows, for the host (readShown). A process that gets no role keeps that one. The
first update or role takes the writer's lock, which the ledger has, and passes it to the families
(role.go). Yielded and Close release it. So does the monitor, if the host is gone and another
program writes, or after a minute.

While the role is Draining, the monitor counts the remaining connections (flows.go). In Active,
Sync deletes UDP flows to endpoints that serve no more, and the monitor deletes connections that
began before their Service existed. It also probes each Family, repairs what other programs have
changed (monitor.go), and checks kernel parameters (settings.go). Report returns progress, drift,
notes and metrics at any time, without the semaphore (report.go).

# Invariants

  - The methods of a Family are called by one goroutine at a time. Only Adopt may run for
    several families at once.
  - Plan is called only after Node, Role and SetDesired, so never before the first update of a
    session. A role that is set earlier therefore removes nothing.
  - Apply is called only with the writer's lock (or if the mode has none), and only if the state
    of the kernel is known: no error has occurred since the last Adopt.
  - When a call returns, a refused Service has the P that served it before.
  - A process that has yielded or was closed writes nothing.

# Goroutines

A Dataplane has one goroutine, the monitor, which probes and repairs. It starts with the first
Configure and ends with Close. It works only while it holds the semaphore that each call of
the host holds too, and stops when a call waits for it. A Family may have goroutines of its
own, for example to listen to the kernel. They must run only while the Family has the writer's
lock (Family.Hold).
*/
package frame
