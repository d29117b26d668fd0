// SPDX-License-Identifier: Apache-2.0

/*
Package swap takes a node from one dataplane to another while connections run.

	            ┌────────────── the one that serves (From) ─────────────┐
	preflight ─▶ staging ─▶ verifying ─▶ holding ─▶ cutting ─▶ proving ─▶ draining ─▶ clearing ─▶ idle
	            └─ To: standby, sent everything ──┘  roles      canary    └─ From: nothing new ─┘
	    │           │           │          │           │          │
	    └───────────┴───────────┴──────────┘           └──────────┴──▶ returning ─▶ draining ─▶ …
	      failed: To is cleared away,                    failed: the roles are set back, and
	      From never noticed                             To is the one that drains and goes

There are always two, the one to stay and the one to leave; a swap that fails
only makes them change places. So there is one way to remove a dataplane,
and it is never that of the one that serves.

# What decides, what acts

Machine.Step is a pure function: where the swap stands, what happened, what time
it is; out come the next stage and its work, a list of actions that can be
printed. A Runner does them, one after the other, and gives the machine the outcome
as an event. What the actions need of a dataplane is the interface Dataplane; of the
host, the interface Host.

# What is promised

The stage is on disk, with fsync, before its first action. A host that is killed
anywhere finds it at its next start (Recover), and finishes the swap if the
canary had passed, else undoes it. Both dataplanes are fed until one is gone.
Traffic is switched while no update is under way and both have confirmed the
same state. Every stage ends by time. Nothing is removed because something is
broken: only a dataplane that drains, while another one is Active, is cleared.

# The same mode with another binary

The kernel's state is the hand-over. The second process is started and configured
beside the first one, which has the writer's lock. Then the first one's process ends,
and the second one adopts what the kernel has and writes what differs. If it fails at
that, the first one is started again, with the binary that it had. Nothing is cleared.

Where connections go through the process, the first one yields instead, and its process
ends when its connections have ended.
*/
package swap
