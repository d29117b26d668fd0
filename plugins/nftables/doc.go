// SPDX-License-Identifier: Apache-2.0

/*
Package nftables serves Services with sets and maps of nf_tables, one table in each IP family.
Rules are made once, when a first Service needs them. A change of a Service is a few elements in
one netlink batch, whatever the number of Services.

	sdk.Service ─▶ want.go       renders the piece of a Service: frontends, endpoints, affinity; pure
	            ─▶ elements.go   returns the elements of a piece; pure
	            ─▶ reconcile     compares them with what the kernel has
	            ─▶ kernel.go     writes the difference by batch.go, and lists the table
	kernel      ─▶ dump.go       parses the entries of a table into pieces; pure

entries.go has the keys and values of all entries of a table: sets, chains and elements. layout.go and entrances.go have
the sets and the rules, parts.go says which of them a Service needs, and affinity.go how clients keep their endpoints.
drift.go notices what other programs changed. docs/nftables.md lists the sets and maps and draws the way of a packet.
*/
package nftables
