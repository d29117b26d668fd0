// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// A Piece is a mode's form of one Service. The zero value needs no entries.
type Piece[P any] interface {
	// Equal reports whether both pieces have the same entries.
	Equal(P) bool
}

// A Mode translates between pieces and entries. Its methods do not read the kernel. The method
// that renders Services into pieces is the mode's own. It may look at the installed pieces, so that
// numbers and slots stay the same and few entries change.
type Mode[P Piece[P], K, V comparable] interface {
	// Entries calls add with each entry of a piece, in an order that is always the same. A desired
	// piece has no key twice.
	Entries(name sdk.Name, p P, add func(K, V))

	// Fixed returns the entries that belong to no Service in a role, for example base chains, sets
	// and devices. need has the containers (Kind.Container) in which Services have had entries
	// since the last List.
	Fixed(role sdk.Role, need map[string]bool) map[K]V

	// Kind classifies a key.
	Kind(K) Kind

	// Parse is the inverse of Entries and Fixed. It returns the pieces to which the listed entries
	// belong, and the role that the fixed ones imply. For damaged entries it may return any
	// pieces, because the reconciler compares the entries of each piece with the listed ones.
	Parse(map[K]V) (map[sdk.Name]P, sdk.Role)
}

// A Kind says how entries with a key are written.
type Kind struct {
	// Container is the object that Mode.Fixed must return before the entry can exist, and which
	// removes its entries when it is removed. It is empty if there is none.
	Container string

	// Add is the phase in which an entry is added or replaced, and Remove the phase in which it is
	// removed. Phases are written in ascending order.
	Add, Remove uint8

	// Counted marks entries that several Services may need. They have no value.
	Counted bool

	// Rebuild marks fixed entries that cannot be changed in place. If List finds one with another
	// value, everything is removed and written again.
	Rebuild bool

	// Label names the key in the steps of a plan.
	Label string
}

// A FrontendMode knows which entries match the packets to a frontend. Frontend returns false for
// other entries.
type FrontendMode[K comparable] interface {
	Frontend(K) (protocol sdk.Protocol, at netip.AddrPort, ok bool)
}

// A Kernel stores entries.
type Kernel[K, V comparable] interface {
	// List returns all entries of this mode, or an error. It never returns only some of them.
	List(context.Context) (map[K]V, error)

	// Apply writes a batch. Unless the kernel is Partial, a phase is written as a whole or not at
	// all.
	//
	// If the kernel refuses entries and nothing of the batch is written, Apply returns the reasons
	// by key. A kernel without transactions (Reconciler.Partial) writes the rest of the batch, and
	// leaves the refused entries as they were. If err is not nil, for example because an earlier
	// phase is written already, the state of the kernel is unknown; refused then may have the
	// entries that caused the error.
	Apply(context.Context, Batch[K, V]) (refused map[K]error, err error)

	// Foreign returns how the kernel may differ from what was listed and applied because another
	// program wrote to it, or "" if it finds no difference. unsure says that the difference is only
	// suspected, or that nothing was checked. Foreign is called twice a second and must cost next
	// to nothing while no other program writes. It may compare a generation, for example.
	Foreign(context.Context) (why string, unsure bool)
}

// A Batch is the argument of one call of Kernel.Apply. It may be empty.
type Batch[K, V comparable] struct {
	Rebuild bool // remove everything that exists, in the same transaction
	Phases  [][]Change[K, V]
}

// An Op is the operation of a Change.
type Op uint8

const (
	Add Op = iota
	Replace
	Remove
)

// String returns the name of op in the steps of a plan.
func (op Op) String() string {
	return [...]string{Add: "add", Replace: "rewrite", Remove: "remove"}[op]
}

// A Change changes one entry.
type Change[K, V comparable] struct {
	Op  Op
	Key K
	Old V // for Replace and Remove
	New V // for Add and Replace
}
