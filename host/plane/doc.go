// SPDX-License-Identifier: Apache-2.0

/*
Package plane decides which process of which dataplane has which role on a node. Like a controller, it
compares the desired state with the observed state and returns the next steps:

	config file, mode swap ─▶ Want  ┐
	mode.json              ─▶ Facts ├─▶ Plan ─▶ steps ─▶ processes, kernel
	heartbeats, cursors    ─▶ []Instance ┘                    │
	              ▲                                           │
	              └────────────── observations ◀──────────────┘

A swap is not an object and has no state of its own: it is the sequence of steps that Plan returns while the
desired mode is not the serving mode. A failed swap is undone in the same way, because then the mode that served
before is the goal. A host that was killed at any point continues from the facts and from what its processes report.

Plan is pure; State records the observations. Start reading at Plan. Package dataplanes has the loop that plans and
runs the steps.

# Invariants

They hold for every order of failures, and whenever the host or a process is killed:

 1. A step that takes traffic away from an instance (Drain, Cleanup, Start with Standby) is planned only while
    another instance is up, has confirmed the whole state, and is Active as observed by this host.
 2. An instance whose state is in the kernel becomes Active only after it has confirmed the whole state and was
    verified, unless the kernel shows it as Active already or it was proved before.
 3. Only one step that moves traffic (Cut, Replace, Promote, Prove) runs at a time.
 4. If an instance was promoted while nothing else served, a failed proof never undoes that.
 5. A mode that may have rules in the kernel and does not serve is in Facts.Left until its Cleanup has succeeded.
 6. A failure before the cut is retried with exponential backoff. A failed proof is retried only when the Want
    changes, because each try is an outage of up to 1.5 s. The same holds for a build that failed after it had
    replaced the former build, because each try ends the process that applies updates.
 7. When failures stop, the desired mode eventually serves, and no other mode has rules in the kernel.

TestRandomFaults checks them.
*/
package plane
