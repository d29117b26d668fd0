// SPDX-License-Identifier: Apache-2.0

/*
Package dataplanes runs the dataplanes of a host: one that serves, and for the time of a
swap another beside it.

The parts that decide know nothing of each other: supervise keeps a process alive, feed
tells it what has changed, swap leads from one dataplane to the next. They meet here,
with what they need of this machine.

	                        ┌───────────────── Set ──────────────────┐
	mode swap, config file ─┼▶ swap.Runner ── swapHost ─┬▶ dataplane ◀┼── track: Services
	                        │        canary: a Service  │  supervise ─┼─▶ the plugin's process
	                        │        of the host's own  │  feed       │
	                        │                           │  ward       │
	                        │                           └▶ dataplane  │
	                        └────────────────────────────────────────┘

A dataplane is a mode as the host runs it (dataplane.go), and as a swap sees it
(swap_side.go). A swapHost is what a swap needs of the rest of the host (swap_host.go). A
ward holds the Services that a plugin crashes on (ward.go), a canary proves that packets
find their way (canary.go), and inForce is what the next host must know (inforce.go).
*/
package dataplanes
