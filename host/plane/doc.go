// SPDX-License-Identifier: Apache-2.0

/*
Package plane decides which process of which dataplane has which role on a node. It compares what is
wanted with what is observed, and returns what to do next, as a controller does:

	config file, mode swap ─▶ Want  ┐
	what is on disk        ─▶ Facts ├─▶ Plan ─▶ steps ─▶ processes, kernel
	heartbeats, cursors    ─▶ []Instance ┘                    │
	              ▲                                           │
	              └──────────── what was observed ◀───────────┘

There is no swap as such, and so no state of one: a swap is what Plan's steps amount to when another mode is wanted
than the one that serves. A failed swap is undone by the same steps, because the mode that served is then the goal. A
host that was killed anywhere plans on from the facts and from what its processes report.

# Invariants

Whatever order things fail in, and whenever the host or a process is killed:

 1. A step that takes traffic away from an instance (Drain, Cleanup, Start with Standby) is planned only while another
    instance is up, has confirmed everything and is Active in this host's own sight.
 2. An instance whose state is in the kernel becomes Active only after it has confirmed everything and was verified,
    unless the kernel shows that it is Active already, or it was proved before.
 3. Only one step that moves traffic goes on at a time (Cut, Replace, Promote, Prove).
 4. What was promoted while nothing else served is never undone because a proof failed.
 5. A mode that may have rules in the kernel and does not serve is in Facts.Left until its Cleanup has succeeded.
 6. What fails before the cut is tried again with growing pauses. A proof that failed is tried again only when
    something else is wanted, because each try is an outage of up to 1.5 s. So is a build that failed once it had taken
    the place of the former one: each try ends the process that follows updates.
 7. Once nothing fails any more the wanted mode serves, and no other mode has rules in the kernel.

TestRandomFaults checks them. Package dataplanes has the loop that plans and does the steps.
*/
package plane
