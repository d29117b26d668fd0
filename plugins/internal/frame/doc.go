// SPDX-License-Identifier: Apache-2.0

/*
Package frame is what every dataplane does in the same way, whatever it writes. A
dataplane brings a [Mode]: how a session is opened, and one [Family] or more, each of
which knows what it has written, what is desired, and how to get from one to the other.
The frame brings everything else that the contract of package sdk asks for:

	line  0  sessions: an update of another session, or a gap, asks for a Full
	line  3  what a cut-off or failed call left is unknown, and is read before it is written
	line  4  a Service that is refused keeps what served it
	line  5  only Services that changed are rendered
	line  6  nothing is written before the first update; what another process wrote is adopted
	line  7  roles, from any to any; connections that are counted while draining
	line  8  one writer: without the lock a call changes nothing, and answers Busy
	line  9  UDP flows that lead nowhere are forgotten
	line 11  one thing at a time: a call of the host interrupts what is done between calls
	line 12  drift: probes, audits, repairs, and yielding without a host

# One update

	Sync ─▶ the writer's lock       Busy while another process has it
	     ─▶ sdk.State.Apply         which Services are touched
	     ─▶ Family.Adopt            only if what the kernel has is not known, and for a Full
	     ─▶ Family.Node, Role       only if they changed
	     ─▶ Family.Want             each touched Service → a P. Pure
	     ─▶ Family.Put              what is desired, by name. Memory only
	     ─▶ Family.Plan             the difference. Pure
	     ─▶ Plan.Apply              writes it, and is true about where it stopped
	     ─▶ sdk.State.Confirm       all but what failed

P is whatever one Service comes to in a family: chains and entries, virtual servers,
sockets. Its zero value is that of a Service which is gone. The frame never looks into a P.

# Invariants

  - A Family's methods are called by one goroutine at a time, but for Adopt, which several
    families may be in at once.
  - Plan is asked for only when Node, Role and Put have said what is desired: never before
    the first update of a session. So a role before it takes nothing away.
  - Apply is called only with the writer's lock (or where the mode has none), and only on
    what was adopted since the last error: what is known, or read anew.
  - A Service that was refused has, when the call returns, the P that served it before.
  - Nothing is written by a process that has yielded or was closed.

# Goroutines

A Dataplane has one of its own. The monitor probes, audits and repairs; it begins with the
first Configure and ends with Close. It works only while it holds the semaphore that each call
holds too, and stops when a call waits for it. A Family may have goroutines of its own, which listen to the
kernel: they begin with Hold of a lock, and end with Hold of none.
*/
package frame
