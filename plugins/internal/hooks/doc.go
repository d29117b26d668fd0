// SPDX-License-Identifier: Apache-2.0

/*
Package hooks walks the first packet of a connection through the rules that this node's kernel has now: both
backends of iptables and every table of nf_tables, other programs' too, in the kernel's order of hooks and
priorities. It reads them when it is asked, and remembers nothing.

	basesNow ─▶ base chains, as the kernel calls them ─┐
	            plugins/internal/oracle                ├▶ Trace ─▶ sdk.Traced
	routes, conntrack, IPVS, programs ─────────────────┘

The route is asked of the kernel. Whatever else decides, such as IPVS, a relay or a BPF program, is named where the
packet comes to it, and not followed.
*/
package hooks
