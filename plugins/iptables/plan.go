// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// A block is what changes in one table at one moment.
type block struct {
	table  string
	chains []chain       // written whole
	remove []iptables.ID // chains that go, once nothing leads to them
	delete []jump        // rules in chains that are not ours
	insert []jump        // each at the top, in this order
}

// A plan is blocks that take effect one after the other: filter first turns away
// what nat is about to let go, then nat changes, then filter lets go of what nat
// has taken. So no packet to a Service finds neither.
type plan []block

// plan finds what must be written so that the tables say what they should, for
// the chains that were touched, with between for filter on the way there, and
// with jumps in place.
func (b *book) plan(between map[iptables.ID]string, jumps []jump) plan {
	first, last := block{table: "filter"}, block{table: "filter"}
	middle := block{table: "nat"}
	for _, id := range b.looked() {
		page, wanted := b.should[id]
		have, there := b.have[id]
		into := &middle
		if id.Table == "filter" {
			into = &last
			if text, ok := between[id]; ok && (!there || have != text) {
				first.chains = append(first.chains, chain{id, lines(text), page.level})
				have, there = text, true
			}
		}
		switch {
		case wanted && (!there || have != page.text):
			into.chains = append(into.chains, chain{id, lines(page.text), page.level})
		case !wanted && there:
			into.remove = append(into.remove, id)
		}
	}
	b.planJumps(jumps, &first, &middle, &last)
	proxied := block{table: "mangle"}
	if _, there := b.have[nat(canary)]; there && b.whole {
		proxied.remove = []iptables.ID{{Table: "mangle", Chain: canary}} // kube-proxy has one in each table
	}
	var p plan
	for _, block := range []block{first, middle, last, proxied} {
		if !block.empty() {
			p = append(p, block)
		}
	}
	return p
}

// looked are the chains to look at: those that were touched, once it is known what
// they should say.
func (b *book) looked() []iptables.ID {
	if !b.whole {
		return nil
	}
	return slices.SortedFunc(maps.Keys(b.touched), compareIDs)
}

// planJumps adds the jumps that are missing and takes out those that should not
// be there. A jump of filter goes in first and out last; one that kube-proxy made,
// and we do not, goes with the chain that it leads to.
func (b *book) planJumps(jumps []jump, first, middle, last *block) {
	for _, j := range jumps {
		if !b.jumps[j] {
			into := first
			if j.at.Table == "nat" {
				into = middle
			}
			into.insert = append(into.insert, j)
		}
	}
	ours := b.ground.jumps(sdk.Active)
	for _, j := range slices.SortedFunc(maps.Keys(b.jumps), compareJumps) {
		if slices.Contains(jumps, j) {
			continue
		}
		into := last
		switch {
		case j.at.Table == "nat":
			into = middle
		case !slices.Contains(ours, j):
			into = first
		}
		into.delete = append(into.delete, j)
	}
}

func (b block) empty() bool {
	return len(b.chains) == 0 && len(b.remove) == 0 && len(b.delete) == 0 && len(b.insert) == 0
}

// script is the whole plan as iptables-restore takes it.
func (p plan) script() *iptables.Script {
	s := new(iptables.Script)
	for _, b := range p {
		b.write(s)
	}
	return s
}

// write declares every chain before any rule, since rules may lead to any of them.
func (b block) write(s *iptables.Script) {
	s.Begin(b.table)
	for _, c := range b.chains {
		s.Declare(c.id.Chain)
	}
	for _, id := range b.remove {
		s.Declare(id.Chain) // and empty it, so that nothing leads on from it
	}
	for _, c := range b.chains {
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

// done notes that a plan has been carried out.
func (b *book) done(p plan) {
	for _, block := range p {
		b.doneBlock(block)
	}
}

func (b *book) doneBlock(block block) {
	for _, c := range block.chains {
		if page, ok := b.should[c.id]; ok && page.text == joined(c.rules) {
			b.hold(c.id, page.text) // one copy of the text for both
			continue
		}
		b.hold(c.id, joined(c.rules))
	}
	for _, id := range block.remove {
		b.lose(id)
	}
	for _, j := range block.delete {
		delete(b.jumps, j)
	}
	for _, j := range block.insert {
		b.jumps[j] = true
	}
}

// pieces cuts a plan that is too big for one go: as many chains at a time as size
// says. Those that others lead to are written first, so that nothing half-written
// is seen; those that go are all emptied before the first is removed.
func (p plan) pieces(size int) []plan {
	if p.chains() <= size {
		return []plan{p}
	}
	var cut []plan
	for _, b := range p {
		chains := slices.Clone(b.chains)
		slices.SortStableFunc(chains, func(x, y chain) int { return cmp.Compare(rank(x), rank(y)) })
		parts := slices.Collect(slices.Chunk(chains, size))
		for _, part := range parts[:max(0, len(parts)-1)] {
			cut = append(cut, plan{{table: b.table, chains: part}})
		}
		last := block{table: b.table, delete: b.delete, insert: b.insert}
		if len(parts) > 0 {
			last.chains = parts[len(parts)-1]
		}
		cut = append(cut, plan{last})
		for part := range slices.Chunk(b.remove, size) {
			cut = append(cut, plan{{table: b.table, chains: emptied(part)}})
		}
		for part := range slices.Chunk(b.remove, size) {
			cut = append(cut, plan{{table: b.table, remove: part}})
		}
	}
	return cut
}

// emptied are the chains called ids, without a rule.
func emptied(ids []iptables.ID) []chain {
	chains := make([]chain, 0, len(ids))
	for _, id := range ids {
		chains = append(chains, chain{id: id})
	}
	return chains
}

func (p plan) chains() int {
	n := 0
	for _, b := range p {
		n += len(b.chains) + len(b.remove)
	}
	return n
}

// rank orders chains so that each stands behind those it leads to. A chain of a
// tree has its level below the root, and the root none.
func rank(c chain) int {
	name := c.id.Chain
	isPart := len(name) == len("KUBE-SVC-")+16+3
	switch stem := name[:min(len(name), 9)]; {
	case stem == "KUBE-SEP-":
		return 1
	case (stem == "KUBE-SVC-" || stem == "KUBE-SVL-") && isPart:
		return 2
	case stem == "KUBE-SVC-", stem == "KUBE-SVL-":
		return 3
	case stem == "KUBE-EXT-":
		return 4
	case strings.HasPrefix(stem, "KUBE-FW-"):
		return 5
	case name == services:
		return 8 + tree.Deepest
	case name == nodePorts, name == turnedAway:
		return 7 + tree.Deepest
	case c.level > 0:
		return 6 + tree.Deepest - c.level
	}
	return 0
}

// String is the plan for people, a step a line.
func (p plan) String() string { return strings.Join(p.steps(), "\n") }

func (p plan) steps() []string {
	var steps []string
	add := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }
	for _, b := range p {
		for _, c := range b.chains {
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
	}
	return steps
}

func compareIDs(a, b iptables.ID) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Chain, b.Chain))
}

func compareJumps(a, b jump) int { return cmp.Or(compareIDs(a.at, b.at), cmp.Compare(a.rule, b.rule)) }
