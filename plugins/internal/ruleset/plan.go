// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
)

// A Plan is blocks that take effect one after the other: additions to filter, nat, mangle,
// removals from filter. So a packet to a Service meets one that serves or rejects it at any moment.
type Plan []iptables.Block

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

// A Size is how much one piece of a plan may hold.
type Size struct {
	Chains int
	Lines  int // of chains that are written: one more than a chain has rules
}

// Lines are the lines by which chains are written: one more than each has rules.
func Lines(chains []iptables.Chain) int {
	n := 0
	for _, c := range chains {
		n += 1 + len(c.Rules)
	}
	return n
}

func (s Size) holds(p Plan) bool {
	var all Size
	for _, b := range p {
		all.Chains += len(b.Whole) + len(b.Remove)
		all.Lines += Lines(b.Whole)
	}
	return all.Chains <= s.Chains && all.Lines <= s.Lines
}

// Cut divides chains, in order. A chain that is too large by itself is a part of its own.
func (s Size) Cut(chains []iptables.Chain) [][]iptables.Chain {
	var parts [][]iptables.Chain
	from, lines := 0, 0
	for i, c := range chains {
		if i > from && (i-from == s.Chains || lines+1+len(c.Rules) > s.Lines) {
			parts = append(parts, chains[from:i])
			from, lines = i, 0
		}
		lines += 1 + len(c.Rules)
	}
	if from < len(chains) {
		parts = append(parts, chains[from:])
	}
	return parts
}

// Cut divides a plan that is too large for one piece. The chains that others lead to are
// written first, so that no rule leads to a chain that is not written yet; those that are
// removed are all emptied before the first is removed. So are many in any case: legacy's
// program takes a time that grows with the square of those that are not empty (33,000: 1.5 s
// of a processor at once, 0.6 s emptied first).
func (p Plan) Cut(size Size, rank func(iptables.Chain) int) []Plan {
	if size.holds(p) && !p.removes(manyRemoved) {
		return []Plan{p}
	}
	var all []Plan
	for _, b := range p {
		chains := slices.Clone(b.Whole)
		slices.SortStableFunc(chains, func(x, y iptables.Chain) int { return cmp.Compare(rank(x), rank(y)) })
		parts := size.Cut(chains)
		for _, part := range parts[:max(0, len(parts)-1)] {
			all = append(all, Plan{{Table: b.Table, Whole: part}})
		}
		last := iptables.Block{Table: b.Table, Delete: b.Delete, Insert: b.Insert}
		if len(parts) > 0 {
			last.Whole = parts[len(parts)-1]
		}
		if !last.Empty() {
			all = append(all, Plan{last})
		}
		for part := range slices.Chunk(b.Remove, size.Chains) {
			all = append(all, Plan{{Table: b.Table, Whole: iptables.Emptied(part)}})
		}
		for part := range slices.Chunk(b.Remove, size.Chains) {
			all = append(all, Plan{{Table: b.Table, Remove: part}})
		}
	}
	return all
}

// manyRemoved is how many chains are emptied before they are removed.
const manyRemoved = 1000

func (p Plan) removes(many int) bool {
	return slices.ContainsFunc(p, func(b iptables.Block) bool { return len(b.Remove) > many })
}

// pace is how much goes into one piece, and how many pieces one run of a program is handed:
// so many that starting it costs little beside, and so few that progress is seen. there is
// how many rules the table of nat has.
//
// nft takes a time that grows with the square of the chains: 10,000 Services cost 1.1 s
// of a processor by 500 chains at a time, 3.6 s by 4,000, and 7.7 s at once. legacy
// copies the whole table for each piece, so it takes all in one.
//
// nft's program also keeps the chains that rules of a piece lead to in a list, which it
// searches from the beginning for each rule: 20,000 rules, to a chain each, take it 8 s in
// one piece.
//
// And the kernel checks, with each piece that adds a rule, every way through the rules that
// are there: 0.1 s among 100,000. So where there are many the pieces are fewer: then a
// change of 600 of 3,000 Services with ten endpoints costs 1.8 s of a processor, and 2.4 s
// by the small ones.
func pace(backend iptables.Backend, there int) (each Size, pieces int) {
	switch {
	case backend != iptables.NFT:
		return Size{math.MaxInt, math.MaxInt}, 1
	case there > manyRules:
		return Size{Chains: 1500, Lines: 6000}, 8
	}
	return Size{Chains: 500, Lines: 2000}, 16
}

// manyRules is so many that to check them all costs more than larger pieces do.
const manyRules = 20_000
