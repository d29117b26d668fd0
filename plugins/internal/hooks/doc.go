// SPDX-License-Identifier: Apache-2.0

/*
Package hooks follows a packet through everything that this node's kernel has at its hooks:
both backends of iptables, every table of nf_tables and the routes, also those of other programs. It reads
them when it is asked, and remembers nothing.

	RulesNow ─▶ stages, by hook and priority ─┐
	            plugins/internal/trace        ├▶ walk ─▶ sdk.Traced
	            plugins/internal/nftrace      │
	routes, IPVS ─────────────────────────────┘

It exists for the question of why a connection fails: a dataplane knows what it has written, and what
keeps a packet from a Service is mostly another program's rule. What this package does not understand
it names, and only where the packet comes to it: a verdict that it gives is the kernel's.
*/
package hooks
