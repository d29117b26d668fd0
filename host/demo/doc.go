// SPDX-License-Identifier: Apache-2.0

/*
Package demo shows Pointsman at work on one machine: no cluster, no root, under a
minute. It drives the real binaries as a user would, and sends real requests while
it takes an endpoint away and kills the plugin.

	        this process                      pointsman run      pointsman-dataplane-NAME
	┌───────────────────────────┐
	│ load ── requests ─────────┼──────────────────────────────▶ the Services' addresses
	│  └▶ counts                 │  manifests ──▶ host ═════════▶  │
	│ backends ◀────────────────┼─────────────────────────────────┘
	│ steps: edit, kill, ask    │
	└───────────────────────────┘

As root it all happens in a network namespace of its own. There rules may be written,
so there is a second act: the mode changes, there and back, under the same load. The mode
that needs IPVS in the kernel is shown in user-mode Linux where this one has none.

The load runs from the first step to the last. A request that gets no answer is a
failure, and the demo says so and fails; only those that the killing of the plugin
explains are counted apart.
*/
package demo
