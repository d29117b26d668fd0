// SPDX-License-Identifier: Apache-2.0

// Package nftable keeps the table of nf_tables that a dataplane owns, in one IP family: what it
// should have, what the kernel has, and how the kernel gets from the one to the other.
//
//	Wanted of each Service ─▶ Table.Put ─▶ Table.Plan ─▶ Plan.Apply ─▶ kernel
//	                          ▲  what was touched                      │
//	                          └───────────── Table.Adopt ◀─────────────┘
//	                                         Table.Changed, Audit: in doubt?
//
// What the sets, the rules and the elements mean is the dataplane's, which brings a Layout, and a
// Wanted of each Service: what it comes to, with its elements. Only those of Services that were touched
// are compared, so that an update of k Services costs O(k), however many there are. Rules follow the
// node, and what kinds of Services there are.
//
// A plan goes in by batches, which the kernel takes whole or not at all: the layout first, then
// Services in chunks. Of a batch with a bad element the kernel names each; the Services of those fail,
// and the others go in. After any other error it is not known what the kernel has, and it is read again.
//
// While this process is the writer its socket owns the table, where the kernel can do that: other
// programs cannot change it, and it outlives the process.
package nftable
