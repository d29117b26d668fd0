// SPDX-License-Identifier: Apache-2.0

/*
Package supervise keeps the process of a plugin running.

	        configured         a heartbeat missed
	starting ─────▶ serving ─────────────────▶ suspect
	   ▲ │             │ ▲                        │ │
	   │ │ failed      │ └─── answers again ──────┘ │ silent for too long: killed
	   │ ▼             ▼ ended                      ▼
	   └──────────── waiting ◀──────────────────────┘
	      backoff
	                 refused: this node cannot run it; tried again when something changes

[Supervisor.Run] is one loop, and the only place that starts, ends and tries again. Before each start it waits for
Hooks.Start: whether and in which role a process begins is decided elsewhere. Each process is a session of its
own: it is sent the whole state, while a dataplane that keeps its state in the kernel goes on forwarding.

A process hangs when it answers no heartbeat for ten seconds, or thirty if it serves only while it runs; when a call
runs on three seconds past its deadline; or when a call reports no progress and waits for nothing.

Nothing here removes what a dataplane has written. A plugin that crashes, hangs or does not start is no reason to remove
rules that serve. A process that something else runs (Plugin.Address) gets no signal.
*/
package supervise
