// SPDX-License-Identifier: Apache-2.0

/*
Package dataplanes runs the dataplanes of a host: the serving one, and others during a swap and until they are
cleaned up. It asks package plane for the next steps, and runs them.

	mode swap, config file ─▶ Want         ┐
	mode.json              ─▶ Facts        ├─▶ plane.Plan ─▶ steps ─▶ dataplane: process, session, feed
	sessions, heartbeats   ─▶ observations ┘                             ▲
	            ▲                                                        │
	            └───────────────── outcome of each step ◀────────────────┘

Start reading at reconciler.reconcile in reconcile.go. The reconciler's loop is the only place that decides; steps
run beside it (steps.go), and swaps.go describes them as swaps. A dataplane is one process of a mode
(dataplane.go), restarted when Plan returns a Start step (process.go). Each process has a session, in which a feed
sends it updates (session.go) and in which it may lack the writer's lock (busy.go). installed.go connects modes
with their plugins and finds rules in the kernel that nothing updates. auto.go chooses the mode for "auto". mode.go
and status.go answer an operator's requests.

Invariant: no failure here removes a serving dataplane. Package plane guarantees it for its steps; if a step fails
half-way, the roles of its instances are observed again (plane.State.Observe).
*/
package dataplanes
