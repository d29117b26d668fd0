// SPDX-License-Identifier: Apache-2.0

/*
Package yard runs the dataplanes of a host: one that serves, and for the time of a swap
another beside it.

The parts that decide know nothing of each other: supervise keeps a process alive, feed
tells it what has changed, swap leads from one dataplane to the next. They meet here,
with what they need of this machine.

	                        ┌──────────────── Yard ────────────────┐
	mode swap, config file ─┼▶ swap.Runner ─── lever ─┬─▶ plane ◀──┼── track: Services
	                        │        canary: a Service│  supervise ┼─▶ the plugin's process
	                        │        of the host's own│  feed      │
	                        │                         │  ward      │
	                        │                         └─▶ plane    │
	                        └──────────────────────────────────────┘

A plane is one dataplane as the host runs it (plane.go), and as a swap sees it
(points.go). A lever is what a swap moves of the rest (throw.go). A ward holds the
Services that a plugin dies of (ward.go), a canary proves that packets find their way
(canary.go), and inForce is what the next host must know (inforce.go).
*/
package yard
