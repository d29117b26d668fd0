// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
)

// A block is what changes in one table at one moment.
type block struct {
	table  string
	whole  []chain       // written whole
	insert []jump        // each at the top, in this order
	delete []jump        // rules in chains that are not ours
	remove []iptables.ID // chains that go, once nothing leads to them
}

// plan finds what must be written so that the tables say what they should, with
// jumps in place. filter first turns away what nat is about to let go of, then nat
// changes, then filter lets go of what nat has taken.
func (b *book) plan(jumps []jump) []block {
	between := b.settle()
	first, middle, last := block{table: "filter"}, block{table: "nat"}, block{table: "filter"}
	for _, id := range slices.SortedFunc(maps.Keys(b.touched), b.innermost) {
		page, wanted := b.should[id]
		have, there := b.have[id]
		into := &middle
		if id.Table == "filter" {
			into = &last
			if text, ok := between[id]; ok && (!there || have != text) {
				first.whole = append(first.whole, chain{id, apart(text)})
				have, there = text, true
			}
		}
		switch {
		case wanted && (!there || have != page.text):
			into.whole = append(into.whole, chain{id, apart(page.text)})
		case !wanted && there && b.held[id]:
			if have != "" {
				into.whole = append(into.whole, chain{id: id}) // it cannot go while others lead to it
			}
		case !wanted && there:
			into.remove = append(into.remove, id)
		}
	}
	for _, j := range jumps {
		if into := &first; !b.jumps[j] {
			if j.at.Table == "nat" {
				into = &middle
			}
			into.insert = append(into.insert, j)
		}
	}
	for _, j := range slices.SortedFunc(maps.Keys(b.jumps), compareJumps) {
		if into := &last; !slices.Contains(jumps, j) {
			if j.at.Table == "nat" {
				into = &middle
			}
			into.delete = append(into.delete, j)
		}
	}
	return slices.DeleteFunc([]block{first, middle, last}, block.empty)
}

// innermost orders chains so that each stands behind those it leads to, as far as
// one tree goes: what belongs to a single frontend, then leaves, then forks.
func (b *book) innermost(x, y iptables.ID) int {
	return cmp.Or(cmp.Compare(x.Table, y.Table), cmp.Compare(b.rank(y), b.rank(x)), cmp.Compare(x.Chain, y.Chain))
}

// rank is how far inside a chain stands.
func (b *book) rank(id iptables.ID) int {
	switch id {
	case toAny, toInside, toPods, toNode, ownSocket:
		return tree.Deepest + 2
	case container, host, deny:
		return -1 // they lead to roots
	}
	if strings.HasPrefix(id.Chain, ownStem) {
		return tree.Deepest + 1
	}
	return b.should[id].level
}

func (b block) empty() bool { return len(b.whole)+len(b.insert)+len(b.delete)+len(b.remove) == 0 }

// write is b as iptables-restore takes it. Every chain is declared before any rule,
// since rules may lead to any of them.
func (b block) write(s *iptables.Script) {
	s.Begin(b.table)
	for _, c := range b.whole {
		s.Declare(c.id.Chain)
	}
	for _, id := range b.remove {
		s.Declare(id.Chain) // and empty it, so that nothing leads on from it
	}
	for _, c := range b.whole {
		s.Append(c.id.Chain, c.rules)
	}
	for _, j := range b.delete {
		s.Delete(j.at.Chain, j.rule)
	}
	for _, j := range b.insert {
		s.Insert(j.at.Chain, j.rule)
	}
	for _, id := range b.remove {
		s.Remove(id.Chain)
	}
	s.Commit()
}

// steps is b for people.
func (b block) steps() []string {
	var steps []string
	add := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }
	for _, c := range b.whole {
		add("write %s (%d rules)", c.id, len(c.rules))
	}
	for _, j := range b.delete {
		add("delete from %s: %s", j.at, j.rule)
	}
	for _, j := range b.insert {
		add("insert into %s: %s", j.at, j.rule)
	}
	for _, id := range b.remove {
		add("remove %s", id)
	}
	return steps
}

// cut divides blocks that are too big for one go into some of at most size chains.
// What others lead to is written first, so that nothing half-written is seen; what
// goes is all emptied before the first of it is removed.
func cut(blocks []block, size int) []block {
	var all []block
	for _, b := range blocks {
		for len(b.whole) > size {
			all = append(all, block{table: b.table, whole: b.whole[:size]})
			b.whole = b.whole[size:]
		}
		gone := b.remove
		if len(b.whole)+len(gone) <= size {
			all = append(all, b)
			continue
		}
		b.remove = nil
		all = append(all, b)
		for some := range slices.Chunk(gone, size) {
			all = append(all, block{table: b.table, whole: emptied(some)})
		}
		for some := range slices.Chunk(gone, size) {
			all = append(all, block{table: b.table, remove: some})
		}
	}
	return all
}

// emptied are the chains called ids, without a rule.
func emptied(ids []iptables.ID) []chain {
	chains := make([]chain, 0, len(ids))
	for _, id := range ids {
		chains = append(chains, chain{id: id})
	}
	return chains
}

func compareIDs(a, b iptables.ID) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Chain, b.Chain))
}

func compareJumps(a, b jump) int { return cmp.Or(compareIDs(a.at, b.at), cmp.Compare(a.rule, b.rule)) }
