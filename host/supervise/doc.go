// SPDX-License-Identifier: Apache-2.0

/*
Package supervise keeps a plugin's process alive.

	        launched        three beats missed
	starting ─────▶ serving ─────────────────▶ suspect
	   ▲ │             │ ▲                        │ │
	   │ │ did not     │ │ answers after all      │ │ still silent: killed
	   │ │ come up     │ └────────────────────────┘ │
	   │ ▼             ▼ ended                      ▼
	   └──────────── waiting ◀──────────────────────┘
	    time is up
	                 refused: this node cannot run it; until something changes

What to do is decided by a pure function, Machine.Step; a Supervisor does it, and
tells the machine what came of it. Each new process is a new session: the whole
state is sent again, and a dataplane that keeps its state in the kernel has gone
on forwarding meanwhile.

Nothing here removes what a dataplane has made. A plugin that crashes, hangs or
cannot come up is no reason to take rules away that serve.
*/
package supervise
