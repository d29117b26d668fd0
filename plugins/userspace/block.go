// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
)

// plan finds what must be written so that the tables say what they should, with
// jumps in place. filter first turns away what nat is about to let go of, then nat
// changes, then filter lets go of what nat has taken.
func (b *book) plan(jumps []iptables.Jump) []iptables.Block {
	between := b.settle()
	first, middle, last := iptables.Block{Table: "filter"}, iptables.Block{Table: "nat"}, iptables.Block{Table: "filter"}
	for _, id := range slices.SortedFunc(maps.Keys(b.touched), b.innermost) {
		page, wanted := b.should[id]
		have, there := b.have[id]
		into := &middle
		if id.Table == "filter" {
			into = &last
			if text, ok := between[id]; ok && (!there || have != text) {
				first.Whole = append(first.Whole, iptables.Chain{ID: id, Rules: iptables.Split(text)})
				have, there = text, true
			}
		}
		switch {
		case wanted && (!there || have != page.text):
			into.Whole = append(into.Whole, iptables.Chain{ID: id, Rules: iptables.Split(page.text)})
		case !wanted && there && b.held[id]:
			if have != "" {
				into.Whole = append(into.Whole, iptables.Chain{ID: id}) // it cannot go while others lead to it
			}
		case !wanted && there:
			into.Remove = append(into.Remove, id)
		}
	}
	for _, j := range jumps {
		if into := &first; !b.jumps[j] {
			if j.At.Table == "nat" {
				into = &middle
			}
			into.Insert = append(into.Insert, j)
		}
	}
	for _, j := range slices.SortedFunc(maps.Keys(b.jumps), iptables.Jump.Compare) {
		if into := &last; !slices.Contains(jumps, j) {
			if j.At.Table == "nat" {
				into = &middle
			}
			into.Delete = append(into.Delete, j)
		}
	}
	return slices.DeleteFunc([]iptables.Block{first, middle, last}, iptables.Block.Empty)
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

// cut divides blocks that are too big for one go into some of at most size chains.
// What others lead to is written first, so that nothing half-written is seen; what
// goes is all emptied before the first of it is removed.
func cut(blocks []iptables.Block, size int) []iptables.Block {
	var all []iptables.Block
	for _, b := range blocks {
		for len(b.Whole) > size {
			all = append(all, iptables.Block{Table: b.Table, Whole: b.Whole[:size]})
			b.Whole = b.Whole[size:]
		}
		gone := b.Remove
		if len(b.Whole)+len(gone) <= size {
			all = append(all, b)
			continue
		}
		b.Remove = nil
		all = append(all, b)
		for some := range slices.Chunk(gone, size) {
			all = append(all, iptables.Block{Table: b.Table, Whole: iptables.Emptied(some)})
		}
		for some := range slices.Chunk(gone, size) {
			all = append(all, iptables.Block{Table: b.Table, Remove: some})
		}
	}
	return all
}
