// SPDX-License-Identifier: Apache-2.0

/*
Package dataplanes runs the dataplanes of a host: the one that serves, and those that come and go beside it. It asks
package plane what to do next, and does it.

	mode swap, config file ─▶ what is wanted ┐
	mode.json ─▶ facts                       ├─▶ plane.Plan ─▶ steps ─▶ dataplane: process, session, feed
	sessions, heartbeats ─▶ observations     ┘                             ▲
	            ▲                                                          │
	            └────────────── what a step came to ◀──────────────────────┘

A Set is put together from parts that each know only what they need. The reconciler has the loop (reconcile.go), which
is the only place that decides, and steps, which run beside it (steps.go); swaps.go tells what goes on in the words of
a swap. A dataplane is one process of a mode (dataplane.go), which is started again once Plan says so (process.go); with each
process there is a session, in which a feed updates it (session.go), and in which it may lack the writer's lock
(busy.go). Besides there are the plugins that are installed and a survey of rules that are left to
themselves (installed.go), and the mode that "auto" stands for (auto.go). mode.go and status.go have what an operator
asks for.

Nothing here removes a dataplane that serves because something failed: that is an invariant of package plane, and holds
for steps that fail half-way, whose roles are observed (plane.State.Observe).
*/
package dataplanes
