// SPDX-License-Identifier: Apache-2.0

package sdk

// An Update leads a dataplane from one revision of the desired state to another. It contains
// whole values, so receiving one twice is harmless. Order within an Update has no meaning: a
// frontend that moves from one Service to another is switched, never removed after it was
// added.
type Update struct {
	// From and To are revisions within a session; they have no meaning across sessions. A Full
	// has From zero. After an error the next update leads from the same revision, or is a Full,
	// and repeats everything sent since, with the current values.
	From, To uint64

	// Full means that Set is complete: Services that it does not name are no longer desired.
	Full bool

	Node   *Node     // nil if unchanged
	Set    []Service // added or changed
	Delete []Name    // removed; names that do not exist are harmless
}
