// SPDX-License-Identifier: Apache-2.0

/*
Package hooks evaluates the rules that the kernel of this node has now for the first packet of a connection: both
backends of iptables and all tables of nf_tables, including those of other programs, in the kernel's order of hooks
and priorities. It reads the rules for each trace and keeps no state.

	basesNow ─▶ base chains, as the kernel calls them ─┐
	            plugins/internal/oracle                ├▶ Trace ─▶ sdk.Traced
	routes, conntrack, IPVS, programs ─────────────────┘

Trace asks the kernel for routes. Whatever else decides, such as IPVS, a relay or a BPF program, is named at the point
where the packet reaches it, and not followed. Watch has the kernel trace packets instead.

The package never changes what happens to a packet. Start with Trace.
*/
package hooks
