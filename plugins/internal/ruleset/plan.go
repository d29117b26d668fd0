// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"maps"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
)

// A Plan is blocks that take effect one after the other: additions to filter, nat, mangle,
// removals from filter. So a packet to a Service meets one that serves or rejects it at any moment.
type Plan = iptables.Plan

// Plan finds what must be written so that the kernel has what it should, of the chains that
// were touched, with the jumps in place. It is called once the set has had all owners: what
// none wants is removed.
func (s *Set[K]) Plan() Plan {
	between := s.settle()
	b := newBlocks()
	for _, id := range slices.SortedFunc(maps.Keys(s.touched), iptables.ID.Compare) {
		want, wanted := s.chains[id]
		have, there := s.text[id]
		into := b.of(id.Table)
		if id.Table == "filter" {
			if c, ok := between[id]; ok && (!there || !s.same(id, have, c.text)) {
				b.first.Whole = append(b.first.Whole, c.as(id))
				have, there = c.text, true
			}
		}
		switch {
		case wanted && (!there || !s.same(id, have, want.text)):
			into.Whole = append(into.Whole, want.as(id))
		case !wanted && s.held[id]:
			if have != "" { // a foreign rule leads to it, so it cannot be removed
				into.Whole = append(into.Whole, iptables.Chain{ID: id})
			}
		case !wanted && there:
			into.Remove = append(into.Remove, id)
		}
	}
	s.planJumps(b)
	all := append(Plan{b.first, b.nat, b.mangle, b.last}, s.companions(slices.Concat(b.nat.Remove, b.last.Remove))...)
	return slices.DeleteFunc(all, iptables.Block.Empty)
}

// same reports whether a chain that should have the rules want may keep those that it has.
func (s *Set[K]) same(id iptables.ID, have, want string) bool {
	return have == want || s.Same != nil && s.Same(id, have, want)
}

// Removed returns the keys of the entries of nat that the kernel has and will not have after p, which was not
// carried out yet. key reads the key of an entry from a rule.
func (s *Set[K]) Removed(p Plan, key func(iptables.Rule) (tree.Key, bool)) []tree.Key {
	removed := make(map[tree.Key]bool)
	inTree := func(id iptables.ID) bool {
		return id.Table == "nat" && slices.ContainsFunc(s.config.Trees, func(t Tree) bool { return t.Has(id) })
	}
	each := func(rules []iptables.Rule, f func(tree.Key)) {
		for _, r := range rules {
			if k, ok := key(r); ok {
				f(k)
			}
		}
	}
	var comes []iptables.Rule
	for _, b := range p {
		goes := slices.Clone(b.Remove)
		for _, c := range b.Whole {
			if inTree(c.ID) {
				goes, comes = append(goes, c.ID), append(comes, c.Rules...)
			}
		}
		for _, id := range goes {
			if inTree(id) { // others hold no entries, and may be long
				each(iptables.Split(s.text[id]), func(k tree.Key) { removed[k] = true })
			}
		}
	}
	each(comes, func(k tree.Key) { delete(removed, k) })
	return slices.Collect(maps.Keys(removed))
}

// blocks are those of a plan, in the order in which they take effect.
type blocks struct{ first, nat, mangle, last iptables.Block }

func newBlocks() *blocks {
	filter := iptables.Block{Table: "filter"}
	return &blocks{filter, iptables.Block{Table: "nat"}, iptables.Block{Table: "mangle"}, filter}
}

// of is the block of a table; of filter the last one.
func (b *blocks) of(table string) *iptables.Block {
	switch table {
	case "nat":
		return &b.nat
	case "mangle":
		return &b.mangle
	}
	return &b.last
}

// planJumps adds the jumps that are missing and takes out those that should not be there. A
// jump of filter goes in first and out last; one that only kube-proxy makes goes before the
// chain that it leads to changes. Each is put at the top, so those that are there and stand
// before one that is missing are put there again, in the same commit: the order of the
// jumps decides which chain sees a packet first. So are those that are there twice. Where it
// is not known which are there nothing is written.
func (s *Set[K]) planJumps(b *blocks) {
	added := make(map[iptables.ID]bool)
	for _, j := range s.jumps {
		if s.unread[j.At] != "" || s.standing[j] == 1 && !added[j.At] {
			continue
		}
		into := b.of(j.At.Table)
		if into == &b.last {
			into = &b.first
		}
		for range s.standing[j] {
			into.Delete = append(into.Delete, j)
		}
		into.Insert = append(into.Insert, j)
		added[j.At] = true
	}
	for _, j := range slices.SortedFunc(maps.Keys(s.standing), iptables.Jump.Compare) {
		if slices.Contains(s.jumps, j) || s.unread[j.At] != "" {
			continue
		}
		into := b.of(j.At.Table)
		if into == &b.last && !slices.Contains(s.own, j) {
			into = &b.first
		}
		for range s.standing[j] {
			into.Delete = append(into.Delete, j)
		}
	}
}

// companions are the blocks that remove the companions of chains that go, or that the
// kernel has although it should not.
func (s *Set[K]) companions(removed []iptables.ID) []iptables.Block {
	var blocks []iptables.Block
	for _, id := range removed {
		if with, ok := s.config.Companions[id]; ok {
			blocks = append(blocks, iptables.Block{Table: with.Table, Remove: []iptables.ID{with}})
		}
	}
	return blocks
}
