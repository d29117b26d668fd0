// SPDX-License-Identifier: Apache-2.0

// Package rules reconciles the iptables rules of a mode, in one IP family: it is a Mode and a Kernel of package
// reconcile.
//
//	Piece of a Service ─▶ chains, entries of trees ┐
//	SetFixed, SetJumps ─▶ chains, jumps            ┴▶ reconcile ─▶ Apply: trees ─▶ blocks ─▶ iptables-restore
//	SetRoot ─▶ what stands beside a tree in its root ─────────────────▲
//
// An entry of the reconciler is one of these:
//   - a chain, whose value is its rules;
//   - what catches packets in a tree of chains (package tree), whose value is the rest of its rule;
//   - our jumps at one built-in chain, from top to bottom: one entry, because their order decides which of our chains
//     sees a packet first.
//
// The chains of trees are no entries. Apply puts the changed entries into the trees, and writes the chains that have
// another text then. List reads the entries of trees back; a chain of a tree that is not as its entries require is
// listed as damage, which the next plan removes.
//
// # Order
//
// Tables take effect one after the other, so filter first rejects what nat is about to stop serving, then nat changes,
// and then filter stops rejecting what nat serves now: at no moment does a packet to a Service meet neither. Mangle
// follows nat. The chains of trees in filter are therefore composed twice: with what is added and still with what is
// removed, and without it.
//
// # Whose is a chain
//
// A chain is ours if Config.IsOurs says so, and a jump if it is a listed one (iptables.Jump.Listed). Everything else
// is foreign, and stays: a chain of ours to which a foreign rule leads is emptied, and not removed. At a built-in
// chain of which the program does not say whether our jumps stand there nothing is written.
package rules
