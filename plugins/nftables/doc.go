// SPDX-License-Identifier: Apache-2.0

/*
Package nftables serves Services with sets and maps of nf_tables, one table in each IP family.
Rules are made once, when a first Service needs them. A change of a Service is a few elements in
one netlink batch, whatever the number of Services.

	sdk.Service ─▶ want.go       wanted: frontends, lists, affinity; pure
	            ─▶ elements.go   the elements of a wanted; pure
	            ─▶ nftable.Table what differs from what the kernel has, in batches
	kernel      ─▶ dump.go       what it has, as wanted again; pure

layout.go and entrances.go have the sets and the rules, parts.go says which of them a Service needs, and affinity.go
how clients keep their endpoints. docs/nftables.md lists the sets and maps and draws the way of a packet.
*/
package nftables
