// SPDX-License-Identifier: Apache-2.0

// Package rules reconciles the iptables rules of a mode, in one IP family, with the kernel. It implements the
// interfaces Mode and Kernel of package reconcile.
//
//	Piece of a Service ─▶ chains, entries of trees ┐
//	SetFixed, SetJumps ─▶ chains, jumps            ┴▶ reconcile ─▶ Apply: trees ─▶ blocks ─▶ iptables-restore
//	SetRoot ─▶ rules beside a tree in its root ───────────────────────▲
//
// An entry of the reconciler is one of these:
//   - a chain; its value is the chain's rules;
//   - an entry of a tree of chains (package tree), which matches packets to one frontend; its value is the
//     rest of its rule;
//   - our jumps at one built-in chain, from top to bottom. They are one entry, because their order decides
//     which of our chains sees a packet first.
//
// The chains of trees are not entries. Apply updates the trees with the changed entries, and then writes the
// chains whose text has changed. List reads the entries of trees back. If a chain of a tree differs from what
// its entries require, List returns an entry of kind ofDamage, which the next plan removes.
//
// # Order
//
// Tables take effect one after the other, but a packet to a Service must at every moment be either rejected or
// translated. So filter first rejects what nat is about to stop serving, then nat changes, and then filter stops
// rejecting what nat now serves. Mangle follows nat. The chains of trees in filter are therefore composed
// twice: first with the additions but without the removals, then with both.
//
// # Ownership
//
// A chain is ours if Config.IsOurs says so. A jump is ours if it is listed (iptables.Jump.Listed). Everything
// else is foreign and stays. A chain of ours to which a foreign rule leads is emptied and not removed. Nothing
// is written to a built-in chain if the program cannot say whether our jumps are in it.
//
// Start with Rules, then mode.go (pieces and entries) and kernel.go (List and Apply).
package rules
