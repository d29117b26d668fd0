// SPDX-License-Identifier: Apache-2.0

/*
Package nftnl speaks the kernel's own language for nftables: netlink messages of the
subsystem NFNL_SUBSYS_NFTABLES. No program runs and no text is parsed, so that one changed
element costs microseconds.

	Batch ── what is to be changed, in order: one transaction, all or nothing
	  │        tables, chains, rules of Exprs, sets, elements
	  ▼
	Conn.Send ──▶ kernel ──▶ nothing, or Faults: for each bad operation of the batch, why
	Conn.Chains, Rules, Sets, Elements, Generation: what the kernel has

The encoding is pure and the same everywhere; only Conn needs Linux. Names in comments, such
as NFTA_SET_KEY_TYPE, are those of linux/netfilter/nf_tables.h. Numbers are in network order
unless it says otherwise, and so are the bytes of keys and data, as packets have them; of a
mark they are in host order.

Registers are counted in words of 4 bytes, from 0 to 15. A key of several fields lies in
consecutive registers, each field padded to whole words.
*/
package nftnl
