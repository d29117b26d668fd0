// SPDX-License-Identifier: Apache-2.0

package addresses

// A note is what is on disk of one address.
type note struct {
	Interface string   `json:"interface"`         // its name, for people
	Created   uint64   `json:"created,omitempty"` // as the system says of the address; zero: it may not be added yet, or the system does not say
	Holders   []string `json:"holders"`           // the processes that want it
}

// ours reports whether a is the address that n notes.
func (n *note) ours(a *Address) bool {
	switch {
	case n == nil || a == nil:
		return false
	case n.Created != 0:
		return n.Created == a.Created
	}
	return a.added()
}

// An action is what becomes of one address.
type action uint8

const (
	leave  action = iota // there is nothing to do
	add                  // note it, then add it
	keep                 // it is ours, and stays
	use                  // another program added it: no note of ours is about it
	remove               // it is ours: remove it, then its note
	forget               // only the note is left of it
)

// decide says what becomes of an address. n is its note, there what the system has; either may
// be nil. wanted: a process that lives wants it.
func decide(n *note, there *Address, wanted bool) action {
	switch {
	case wanted && there == nil:
		return add
	case wanted && n.ours(there):
		return keep
	case wanted:
		return use
	case n.ours(there):
		return remove
	case n != nil:
		return forget
	}
	return leave
}
