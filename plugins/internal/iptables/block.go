// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
)

// A Chain is a chain with all that it is to say.
type Chain struct {
	ID    ID
	Rules []Rule
	Level int // how far below its root it hangs, if in a tree
}

// A Jump is one rule in a chain that is not ours.
type Jump struct {
	At   ID
	Rule Rule
}

// A Block is what changes in one table at one moment.
type Block struct {
	Table  string
	Whole  []Chain // written whole
	Insert []Jump  // each at the top, in this order
	Delete []Jump
	Remove []ID // chains that go, once nothing leads to them
}

// Empty reports whether b changes nothing.
func (b Block) Empty() bool { return len(b.Whole)+len(b.Insert)+len(b.Delete)+len(b.Remove) == 0 }

// Write adds b to s, as the programs of a backend like it best. Every chain is declared
// before any rule, since rules may lead to any of them.
func (b Block) Write(s *Script, to Backend) {
	s.Begin(b.Table)
	for _, chain := range b.declared(to) {
		s.Declare(chain)
	}
	for _, id := range b.Remove {
		s.Declare(id.Chain) // and empty it, so that nothing leads on from it
	}
	for _, c := range b.Whole {
		s.Append(c.ID.Chain, c.Rules)
	}
	for _, j := range b.Delete {
		s.Delete(j.At.Chain, j.Rule)
	}
	for _, j := range b.Insert {
		s.Insert(j.At.Chain, j.Rule)
	}
	for _, id := range slices.Backward(b.Remove) { // legacy's program looks for the next chain after each
		s.Remove(id.Chain)
	}
	s.Commit()
}

// many is how many chains may be made in any order.
const many = 100

// declared are the names of b's chains. For nft many are in no order: iptables-nft-save
// sorts them by a quicksort that takes the first for its pivot. To read 15,000 that were
// made in the order of their names costs it 5.7 s of a processor, and 0.3 s in no order.
// For legacy they are in order, as its program keeps them: to load 110,000 costs it 9.2 s,
// and 13.7 s in no order.
func (b Block) declared(to Backend) []string {
	names := make([]string, 0, len(b.Whole))
	for _, c := range b.Whole {
		names = append(names, c.ID.Chain)
	}
	switch {
	case len(names) <= many:
	case to == Legacy:
		slices.Sort(names)
	default:
		slices.SortStableFunc(names, func(x, y string) int { return cmp.Compare(mixed(x), mixed(y)) })
	}
	return names
}

// mixed is a number for a name, by which names are in no order.
func mixed(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	return h.Sum64()
}

// Steps is b for people, a step a line.
func (b Block) Steps() []string {
	var steps []string
	add := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }
	for _, c := range b.Whole {
		add("write %s (%d rules)", c.ID, len(c.Rules))
	}
	for _, j := range b.Delete {
		add("delete from %s: %s", j.At, j.Rule)
	}
	for _, j := range b.Insert {
		add("insert into %s: %s", j.At, j.Rule)
	}
	for _, id := range b.Remove {
		add("remove %s", id)
	}
	return steps
}

// Emptied are the chains called ids, without a rule.
func Emptied(ids []ID) []Chain {
	chains := make([]Chain, 0, len(ids))
	for _, id := range ids {
		chains = append(chains, Chain{ID: id})
	}
	return chains
}

// Compare orders by table, then by name.
func (id ID) Compare(other ID) int {
	return cmp.Or(cmp.Compare(id.Table, other.Table), cmp.Compare(id.Chain, other.Chain))
}
