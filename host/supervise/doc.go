// SPDX-License-Identifier: Apache-2.0

/*
Package supervise keeps a plugin's process alive.

	        launched           a beat missed
	starting ─────▶ serving ─────────────────▶ suspect
	   ▲ │             │ ▲                        │ │
	   │ │ did not     │ │ answers after all      │ │ still silent: killed
	   │ │ come up     │ └────────────────────────┘ │
	   │ ▼             ▼ ended                      ▼
	   └──────────── waiting ◀──────────────────────┘
	    time is up
	                 refused: this node cannot run it; until something changes

What to do is decided by a pure function, Machine.Step; a Supervisor does it, and
gives the machine the outcome as an event. Each new process is a new session: the whole
state is sent again, and a dataplane that keeps its state in the kernel has gone
on forwarding meanwhile.

A process hangs when it answers no heartbeat, when a call does not return after its
deadline, or when a call makes no progress by the dataplane's own reports, although it
waits for nothing that it names. The last is how a deadlock in a call that may take
minutes is found within seconds.

Nothing here removes what a dataplane has made. A plugin that crashes, hangs or
cannot come up is no reason to remove rules that serve.
*/
package supervise
