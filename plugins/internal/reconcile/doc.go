// SPDX-License-Identifier: Apache-2.0

/*
Package reconcile makes a kernel have the entries that Services need. A mode brings a pure
translation of Services into entries ([Mode]) and a kernel that lists and applies entries
([Kernel]); everything between the two is here, once for all modes.

	         sdk.Service ─▶ piece ─▶ Mode.Entries ─▶ entries ┐
	                                Mode.Fixed    ─▶ entries ┤ desired
	                                                         ▼
	                                Plan: the difference, in phases
	                                                         ▲
	kernel ─▶ Kernel.List ─▶ entries ─▶ Mode.Parse ─▶ pieces ┘ installed

A piece is the mode's own form of one Service, for example its frontends and its endpoints with the
slots that they have in a map. An entry is a key and a value: an element of a set, a chain with its
rules, a virtual server.

A mode embeds a [Family], which is what package frame calls, and adds Want, the fifth pure method. The shortest whole mode is
in mode_linux_test.go.

# Cost

The reconciler stores one piece for each Service. It derives entries from the old and the new piece of
the Services that were touched since the last plan, so that an update of k Services costs O(k). A map of
all entries exists only from [Reconciler.List] until the next plan was applied.

# Invariants

  - Installed is what the kernel has, from a successful List or Apply until the next error of Apply. After
    an error the caller must List before it plans again.
  - An entry that two Services exchange is one change of that entry, and both Services are written in one call of
    Kernel.Apply. If one of them is refused, so is the other: they cannot both have it.
  - A counted entry is in the kernel while at least one Service needs it: it is added before or with the
    first of them, and removed after or with the last.
  - A Service that the kernel refuses keeps its installed piece. All others of the plan are written. If the kernel is
    [Reconciler.Partial], the rest of the refused Service is written for a moment, and then reverted.
  - If List returns what is desired, the plan is empty.

# Concurrency

The caller serializes all methods of a Reconciler.
*/
package reconcile
