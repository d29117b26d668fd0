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

// A Mode translates between pieces and entries. Its methods read no kernel. It renders Services into pieces by a method of
// its own, which may look at Installed: what has a number or a slot keeps that, so that few entries change.
type Mode[P Piece[P], K, V comparable] interface {
	// Entries calls add with each entry of a piece, and with no key twice.
	Entries(name sdk.Name, p P, add func(K, V))

	// Fixed returns the entries that belong to no Service in a role: base chains, sets, devices. need has the containers
	// (Kind.Container) in which Services have had entries since the last List.
	Fixed(role sdk.Role, need map[string]bool) map[K]V

	// Kind classifies a key.
	Kind(K) Kind

	// Parse is the way back from Entries and Fixed: the pieces that listed entries serve, and the role that
	// the fixed ones imply. It may return anything for damaged entries, because the reconciler compares the
	// entries of each returned piece with the listed ones.
	Parse(map[K]V) (map[sdk.Name]P, sdk.Role)
}

// A Kind says how entries with a key are written.
type Kind struct {
	// Container is what Mode.Fixed must create before the entry, and which takes its entries along when it is
	// removed. It is empty if there is none.
	Container string

	// Add and Remove are the phases in which an entry is added or replaced, and removed. Phases are written in
	// ascending order.
	Add, Remove uint8

	// Counted marks entries that several Services may need. They have no value.
	Counted bool

	// Rebuild marks fixed entries that cannot be changed in place: if List finds one with another value,
	// everything is written anew.
	Rebuild bool

	// Label names the key in the steps of a plan, for people.
	Label string
}

// A FrontendMode can tell which frontend an entry catches packets for. It returns false for other entries.
type FrontendMode[K comparable] interface {
	Frontend(K) (protocol sdk.Protocol, at netip.AddrPort, ok bool)
}

// A Kernel stores entries.
type Kernel[K, V comparable] interface {
	// List returns all entries of this mode, or an error; never only some of them.
	List(context.Context) (map[K]V, error)

	// Apply writes a batch. A phase of it is written as a whole or not at all, unless the kernel is Partial.
	//
	// If the kernel refuses entries and nothing of the batch is written, Apply returns the reasons by key. A kernel
	// without transactions (Reconciler.Partial) writes everything else of the batch, and refused entries stay as they
	// were. If err is not nil, for example because an earlier phase is written, it is unknown what the kernel has now;
	// refused may then have the entries that caused the error.
	Apply(context.Context, Batch[K, V]) (refused map[K]error, err error)

	// Foreign returns how the kernel may differ from what was listed and applied, because another program wrote to it;
	// empty: no difference was found. With unsure the difference is only suspected, or nothing was looked at. It is called
	// twice a second and must cost next to nothing while no other program writes, for example by comparing a generation.
	Foreign(context.Context) (why string, unsure bool)
}

// A Batch is what one call of Kernel.Apply writes. It may be empty.
type Batch[K, V comparable] struct {
	Rebuild bool // remove all that is there, in the same transaction
	Phases  [][]Change[K, V]
}

// An Op is what a Change does.
type Op uint8

const (
	Add Op = iota
	Replace
	Remove
)

// A Change changes one entry.
type Change[K, V comparable] struct {
	Op  Op
	Key K
	Old V // of Replace and Remove
	New V // of Add and Replace
}
