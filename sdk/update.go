// SPDX-License-Identifier: Apache-2.0

package sdk

// An Update leads a dataplane from one revision of the wanted state to another.
// It holds whole values, so hearing one twice is harmless, and order inside it
// means nothing: a frontend that moves from one Service to another is switched,
// never removed after it was added.
type Update struct {
	// From and To are revisions within a session; they mean nothing across
	// sessions. A Full leads from nothing, and its From is zero. After an error
	// the next update leads from the same revision, or is a Full, and names again
	// whatever was sent since, as it is now.
	From, To uint64

	// Full says that Set is everything: what it does not name is no longer wanted.
	Full bool

	Node   *Node     // nil: unchanged
	Set    []Service // added or changed
	Delete []Name    // gone; one that was never there is harmless
}
