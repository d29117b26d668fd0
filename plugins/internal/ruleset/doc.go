// SPDX-License-Identifier: Apache-2.0

// Package ruleset keeps the iptables rules that a dataplane owns, in one IP family: what
// they should be, what the kernel has, and how the kernel gets from the one to the other.
//
//	Desired of each owner ─▶ Set.Put ─▶ Set.Plan ─▶ Rules.Write ─▶ kernel
//	                          ▲  what was touched                     │
//	                          └─────────── Set.Adopt ◀── Rules.Read ◀┘
//	                                                     Rules.Look, Audit: in doubt?
//
// A Set is pure: it holds the desired chains, the observed ones, and which of them were
// touched since the two were last the same. Only those are rendered and compared, so an
// update of k Services costs O(k), however many there are.
//
// An owner is whatever a dataplane wants rules for: a Service, a frontend. Its Desired are
// chains of its own, and entries that hang in trees (package tree) of the set. Chains that
// serve all owners are fixed (SetFixed). Jumps at built-in chains lead packets to all of
// these (SetJumps).
//
// A Plan adds before it removes. Tables take effect one after the other, so filter first
// rejects what nat is about to stop serving, then nat changes, and then filter stops
// rejecting what nat now serves: at no moment does a packet to a Service meet neither. Mangle,
// for a dataplane that has rules there (Config.Mangle), follows nat. A plan
// that is too large for one write is cut into pieces, and after each of them every rule
// leads to a chain that exists. What was written is noted piece by piece; after an error the
// kernel is read again before anything else is written.
//
// A chain is ours if Config.Ours says so, and a jump if it is a listed one
// (iptables.Jump.Listed). Everything else is foreign, and stays: a chain of ours to which a
// foreign rule leads is emptied, and not removed.
//
// Rules add the programs of one backend: they read, write, find out which owner's line
// the kernel refused, and notice when another process removes rules.
package ruleset
