// SPDX-License-Identifier: Apache-2.0

/*
Package reconcile makes the entries of a kernel equal to those that Services need. A mode
provides a pure translation of Services into entries ([Mode]), and a kernel that lists and
applies entries ([Kernel]). This package does the rest for all modes: it compares, orders and
batches changes, adopts the entries of former processes, and isolates refused Services.

	         sdk.Service ─▶ piece ─▶ Mode.Entries ─▶ entries ┐
	                                Mode.Fixed    ─▶ entries ┤ desired
	                                                         ▼
	                                Plan: the difference, in phases ─▶ Kernel.Apply
	                                                         ▲
	kernel ─▶ Kernel.List ─▶ entries ─▶ Mode.Parse ─▶ pieces ┘ installed

A piece is the mode's form of one Service, for example its frontends, and its endpoints with
their slots in a map. An entry is a key and a value: an element of a set, a chain with its rules,
a virtual server.

A mode embeds a [Family], which implements frame.Family, and adds Want, which renders a Service
into a piece. To write a mode, start with the complete example in mode_linux_test.go.

The package never writes an entry that the mode does not return, and never reads the kernel
except by Kernel.List.

# Cost

The reconciler stores one piece for each Service. It derives entries only from the old and the
new piece of the Services that were touched since the last plan, so an update of k Services costs
O(k). A map of all entries exists only from [Reconciler.List] until the next plan is applied.

# Invariants

  - The installed pieces describe the kernel from a successful List or Apply until the next error
    of Apply. After an error the caller must List before it plans again.
  - If an entry moves from one Service to another, that is one Change, and both Services are
    written in one call of Kernel.Apply. If one of them is refused, so is the other, because they
    cannot both have the entry.
  - A counted entry exists while at least one Service needs it. It is added before or with the
    first of these Services, and removed after or with the last.
  - A Service that the kernel refuses keeps its installed piece, and all other Services of the
    plan are written. If the kernel is [Reconciler.Partial], other entries of the refused Service
    exist until the next plan, before which the caller makes the former piece desired again.
  - If List returns the desired entries, the plan is empty.

# Concurrency

The caller serializes all methods of a Reconciler.
*/
package reconcile
