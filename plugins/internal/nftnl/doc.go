// SPDX-License-Identifier: Apache-2.0

/*
Package nftnl reads and writes nf_tables by netlink messages of the subsystem
NFNL_SUBSYS_NFTABLES. It runs no program and parses no text, so a change of one element
takes microseconds.

	Batch ── the changes, in order: one transaction, all or nothing
	  │        tables, chains, rules of Exprs, sets, elements
	  ▼
	Conn.Send ──▶ kernel ──▶ nil, or Faults: the reason for each bad operation of the batch
	Conn.List: reads chains, rules, sets and elements

The encoding is pure and the same everywhere; only Conn needs Linux. Names in comments, such
as NFTA_SET_KEY_TYPE, are those of linux/netfilter/nf_tables.h. Numbers are in network order
unless a comment says otherwise. Keys and data have the byte order of packets, which is
network order, except marks and priorities, which are in host order.

Registers are words of 4 bytes, numbered from 0 to 15. A key of several fields is in
consecutive registers, each field padded to whole words.

netfilter.go has the few messages of other subsystems.
The package knows nothing of Services and must not. Start reading at Batch.
*/
package nftnl
