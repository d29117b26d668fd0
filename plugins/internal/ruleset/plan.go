// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// A Plan is blocks that take effect one after the other: additions to filter, nat, removals
// from filter. So a packet to a Service meets one that serves or rejects it at any moment.
type Plan []iptables.Block

// Plan finds what must be written so that the kernel has what it should, of the chains that
// were touched, with the jumps in place. It is called once the set has had all owners: what
// none wants is removed.
func (s *Set[K]) Plan() Plan {
	between := s.settle()
	first, middle, last := iptables.Block{Table: "filter"}, iptables.Block{Table: "nat"}, iptables.Block{Table: "filter"}
	for _, id := range slices.SortedFunc(maps.Keys(s.touched), iptables.ID.Compare) {
		want, wanted := s.chains[id]
		have, there := s.text[id]
		into := &middle
		if id.Table == "filter" {
			into = &last
			if c, ok := between[id]; ok && (!there || have != c.text) {
				first.Whole = append(first.Whole, c.as(id))
				have, there = c.text, true
			}
		}
		switch {
		case wanted && (!there || have != want.text):
			into.Whole = append(into.Whole, want.as(id))
		case !wanted && s.held[id]:
			if have != "" { // a foreign rule leads to it, so it cannot be removed
				into.Whole = append(into.Whole, iptables.Chain{ID: id})
			}
		case !wanted && there:
			into.Remove = append(into.Remove, id)
		}
	}
	middle.Remove, last.Remove = s.limited(middle.Remove), s.limited(last.Remove)
	s.planJumps(&first, &middle, &last)
	blocks := append([]iptables.Block{first, middle, last}, s.companions(slices.Concat(middle.Remove, last.Remove))...)
	return slices.DeleteFunc(Plan(blocks), iptables.Block.Empty)
}

// limited is as many of surplus as one plan removes. No rule leads to any that are left:
// they are spare, and what led there is gone. Those with a higher rank may lead to others,
// so they go first.
func (s *Set[K]) limited(surplus []iptables.ID) []iptables.ID {
	if s.limit == 0 || len(surplus) <= s.limit {
		return surplus
	}
	var some, spare []iptables.ID
	for _, id := range surplus {
		if s.config.Spare != nil && s.config.Spare(id) {
			spare = append(spare, id)
		} else {
			some = append(some, id)
		}
	}
	rank := func(id iptables.ID) int { return s.config.Rank(iptables.Chain{ID: id}) }
	slices.SortStableFunc(spare, func(x, y iptables.ID) int { return cmp.Compare(rank(y), rank(x)) })
	some = append(some, spare[:min(len(spare), max(0, s.limit-len(some)))]...)
	slices.SortFunc(some, iptables.ID.Compare)
	return some
}

// planJumps adds the jumps that are missing and takes out those that should not be there. A
// jump of filter goes in first and out last; one that only kube-proxy makes goes before the
// chain that it leads to changes. Each is put at the top, so those that are there and stand
// before one that is missing are put there again, in the same commit: the order of the
// jumps decides which chain sees a packet first.
func (s *Set[K]) planJumps(first, middle, last *iptables.Block) {
	added := make(map[iptables.ID]bool)
	for _, j := range s.jumps {
		if s.standing[j] && !added[j.At] {
			continue
		}
		into := first
		if j.At.Table == "nat" {
			into = middle
		}
		if s.standing[j] {
			into.Delete = append(into.Delete, j)
		}
		into.Insert = append(into.Insert, j)
		added[j.At] = true
	}
	for _, j := range slices.SortedFunc(maps.Keys(s.standing), iptables.Jump.Compare) {
		if slices.Contains(s.jumps, j) {
			continue
		}
		into := last
		switch {
		case j.At.Table == "nat":
			into = middle
		case !slices.Contains(s.own, j):
			into = first
		}
		into.Delete = append(into.Delete, j)
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

// String is the plan for people, a step a line.
func (p Plan) String() string { return strings.Join(p.Steps(), "\n") }

// Steps are the plan for people: add before remove, in the order in which they take effect.
func (p Plan) Steps() []string {
	var steps []string
	for _, b := range p {
		steps = append(steps, b.Steps()...)
	}
	return steps
}

// Script is the whole plan as the iptables-restore of a backend takes it.
func (p Plan) Script(to iptables.Backend) *iptables.Script {
	s := new(iptables.Script)
	for _, b := range p {
		b.Write(s, to)
	}
	return s
}
