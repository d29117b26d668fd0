// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// A Config says what is particular to one dataplane's rules in one family.
type Config[K comparable] struct {
	Family sdk.Family
	Trees  []Tree

	// Ours reports whether a chain is this dataplane's, by its name.
	Ours func(iptables.ID) bool

	// Mangle says that there are such chains in mangle too.
	Mangle bool

	// Beside, if not nil, names chains that are not this dataplane's, and yet must be known:
	// a table that has one is read.
	Beside func(iptables.ID) bool

	// Rank orders chains: each has a higher rank than those that its rules lead to.
	Rank func(iptables.Chain) int

	// Companions are chains in tables that are never read, which go with one that is.
	Companions map[iptables.ID]iptables.ID
}

// tables are those in which a dataplane may have rules: mangle only if it says so.
var tables = []string{"nat", "filter", "mangle"}

func (c Config[K]) tables() []string {
	if c.Mangle {
		return tables
	}
	return tables[:2]
}

// reads reports whether a table that has chain id is read.
func (c Config[K]) reads(id iptables.ID) bool { return c.Ours(id) || c.Beside != nil && c.Beside(id) }

// A Tree is one in which entries of a set hang.
type Tree struct {
	*tree.Tree

	// Shared says that several owners may want the same entry. It stays until none does.
	Shared bool
}

// Desired is what one owner wants.
type Desired struct {
	Chains  []iptables.Chain
	Entries []Entry
}

// Empty reports whether nothing is wanted.
func (d Desired) Empty() bool { return len(d.Chains) == 0 && len(d.Entries) == 0 }

// An Entry catches packets in one of the set's trees, which is named by its index in
// Config.Trees.
type Entry struct {
	In int
	tree.Entry
}

// A place is where an entry hangs.
type place struct {
	in  int
	key tree.Key
}

func (e Entry) place() place { return place{e.In, e.Key} }

// A Set is the desired and the observed rules of one family.
type Set[K comparable] struct {
	// Same, if not nil, reports whether the kernel may have one text of a chain where another
	// is wanted: they differ in nothing that matters, so the chain is not written for it.
	Same func(id iptables.ID, have, want string) bool

	config  Config[K]
	desired map[K]Desired
	fixed   Desired
	ends    []ends        // of the trees' roots
	shares  map[place]int // how many owners want an entry of a shared tree
	parting map[iptables.ID]K
	removed map[place]Entry // both: what filter loses only after nat has changed

	jumps []iptables.Jump // those that should be there
	own   []iptables.Jump // those that this dataplane makes in any role

	chains  map[iptables.ID]chain[K]
	touched map[iptables.ID]bool

	// What is observed.
	text     map[iptables.ID]string // the rules of each chain of ours, a line each
	standing map[iptables.Jump]int  // how often each listed jump to our chains is there
	unread   map[iptables.ID]string // chains of others that the program cannot print; why, if it is not known which jumps stand there
	held     map[iptables.ID]bool   // the chains of ours to which foreign rules lead
	rules    map[string]int         // how many rules of each table are in text
	largest  int                    // how many chains there were at most since the maps were made
}

// New is a set of no owner, for a kernel that has nothing.
func New[K comparable](c Config[K]) *Set[K] {
	return &Set[K]{
		config:   c,
		desired:  make(map[K]Desired),
		ends:     make([]ends, len(c.Trees)),
		shares:   make(map[place]int),
		parting:  make(map[iptables.ID]K),
		removed:  make(map[place]Entry),
		chains:   make(map[iptables.ID]chain[K]),
		touched:  make(map[iptables.ID]bool),
		text:     make(map[iptables.ID]string),
		standing: make(map[iptables.Jump]int),
		unread:   make(map[iptables.ID]string),
		held:     make(map[iptables.ID]bool),
		rules:    make(map[string]int),
	}
}

// Family is that of the set's addresses.
func (s *Set[K]) Family() sdk.Family { return s.config.Family }

// Tree is one of the set's trees.
func (s *Set[K]) Tree(in int) *tree.Tree { return s.config.Trees[in].Tree }

// Trees are all of the set's trees, in the order of their indexes.
func (s *Set[K]) Trees() []Tree { return s.config.Trees }

// Owners are those that want something. The map is the set's own: it is only read.
func (s *Set[K]) Owners() map[K]Desired { return s.desired }

// SetJumps says which jumps at built-in chains should be there, in the order in which they
// are inserted, each at the top of its chain. own are all that this dataplane makes in any
// role: another one that is listed is kube-proxy's, whose chains it replaces.
func (s *Set[K]) SetJumps(jumps, own []iptables.Jump) { s.jumps, s.own = jumps, own }

// SetFixed replaces what serves all owners.
func (s *Set[K]) SetFixed(d Desired) {
	var all K
	s.replace(all, s.fixed, d)
	s.fixed = d
}

// SetRoot says which rules stand before and after those that a tree has in its root.
func (s *Set[K]) SetRoot(in int, head, tail []iptables.Rule) {
	s.ends[in] = ends{head, tail}
	s.Tree(in).Touch()
}

// Put replaces what owner wants. In nat that takes effect at once. In filter, what is no
// longer wanted goes only after nat has changed (see Plan).
func (s *Set[K]) Put(owner K, d Desired) {
	s.replace(owner, s.desired[owner], d)
	if d.Empty() {
		delete(s.desired, owner)
		return
	}
	s.desired[owner] = d
}

// PutAll is Put for several owners.
func (s *Set[K]) PutAll(all map[K]Desired) {
	for owner, d := range all {
		s.Put(owner, d)
	}
}

// Tables are the chains that should be there, as if the kernel had them. A Tracer finds
// where they send a packet.
func (s *Set[K]) Tables() iptables.Tables {
	s.settle()
	t := make(iptables.Tables, len(s.chains))
	for id, c := range s.chains {
		t[id] = iptables.Split(c.text)
	}
	return t
}

// Concerns reports whether a line that the kernel refused may be one of owner's: its chain
// is owner's, or it is one of owner's entries.
func (s *Set[K]) Concerns(owner K, refused *iptables.LineError) bool {
	if c, ok := s.chains[refused.Chain]; ok && c.owner == owner {
		return true
	}
	return slices.ContainsFunc(s.desired[owner].Entries, func(e Entry) bool {
		t := s.Tree(e.In)
		return t.Has(refused.Chain) && strings.HasSuffix(refused.Line, " "+string(t.Line(e.Entry)))
	})
}

// Suspects are those of the owners in changes to which a refused line may belong. None:
// that cannot be told.
func (s *Set[K]) Suspects(refused *iptables.LineError, changes map[K]Desired) []K {
	if c, ok := s.chains[refused.Chain]; ok {
		if _, changing := changes[c.owner]; changing {
			return []K{c.owner}
		}
	}
	for owner := range changes {
		if s.Concerns(owner, refused) {
			return []K{owner}
		}
	}
	return nil
}
