// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// A plan is blocks that take effect one after the other: filter first turns away
// what nat is about to let go, then nat changes, then filter lets go of what nat
// has taken. So no packet to a Service finds neither.
type plan []iptables.Block

// plan finds what must be written so that the tables say what they should, for
// the chains that were touched, with between for filter on the way there, and
// with jumps in place.
func (b *book) plan(between map[iptables.ID]string, jumps []iptables.Jump) plan {
	first, last := iptables.Block{Table: "filter"}, iptables.Block{Table: "filter"}
	middle := iptables.Block{Table: "nat"}
	for _, id := range b.looked() {
		page, wanted := b.should[id]
		have, there := b.have[id]
		into := &middle
		if id.Table == "filter" {
			into = &last
			if text, ok := between[id]; ok && (!there || have != text) {
				first.Whole = append(first.Whole, iptables.Chain{ID: id, Rules: iptables.Split(text), Level: page.level})
				have, there = text, true
			}
		}
		switch {
		case wanted && (!there || have != page.text):
			into.Whole = append(into.Whole, iptables.Chain{ID: id, Rules: iptables.Split(page.text), Level: page.level})
		case !wanted && b.held[id]:
			if have != "" { // a foreign rule leads to it, so it cannot be removed
				into.Whole = append(into.Whole, iptables.Chain{ID: id})
			}
		case !wanted && there:
			into.Remove = append(into.Remove, id)
		}
	}
	middle.Remove, last.Remove = b.sweep(middle.Remove), b.sweep(last.Remove)
	b.planJumps(jumps, &first, &middle, &last)
	proxied := iptables.Block{Table: "mangle"}
	if _, there := b.have[nat(canary)]; there && b.whole {
		proxied.Remove = []iptables.ID{{Table: "mangle", Chain: canary}} // kube-proxy has one in each table
	}
	var p plan
	for _, block := range []iptables.Block{first, middle, last, proxied} {
		if !block.Empty() {
			p = append(p, block)
		}
	}
	return p
}

// sweep is as many of gone as one plan removes. Of those that are left no packet comes to
// any: they are endpoints' chains, and parts of lists, and what led there is gone.
func (b *book) sweep(gone []iptables.ID) []iptables.ID {
	if b.sweeps == 0 || len(gone) <= b.sweeps {
		return gone
	}
	order := func(id iptables.ID) int { // parts of lists lead to endpoints' chains
		if c := (iptables.Chain{ID: id}); isBelow(c) {
			return -rank(c)
		}
		return -3
	}
	some := slices.Clone(gone)
	slices.SortStableFunc(some, func(x, y iptables.ID) int { return cmp.Compare(order(x), order(y)) })
	n := b.sweeps
	for n < len(some) && order(some[n]) == -3 {
		n++
	}
	slices.SortFunc(some[:n], iptables.ID.Compare)
	return some[:n]
}

// looked are the chains to look at: those that were touched, once it is known what
// they should say.
func (b *book) looked() []iptables.ID {
	if !b.whole {
		return nil
	}
	return slices.SortedFunc(maps.Keys(b.touched), iptables.ID.Compare)
}

// planJumps adds the jumps that are missing and takes out those that should not
// be there. A jump of filter goes in first and out last; one that kube-proxy made,
// and we do not, goes with the chain that it leads to. Each is put at the top, so those
// that are there and go before one that is missing are put there again, in the same
// commit: the guard must see a packet before anything accepts it.
func (b *book) planJumps(jumps []iptables.Jump, first, middle, last *iptables.Block) {
	added := make(map[iptables.ID]bool)
	for _, j := range jumps {
		if b.jumps[j] && !added[j.At] {
			continue
		}
		into := first
		if j.At.Table == "nat" {
			into = middle
		}
		if b.jumps[j] {
			into.Delete = append(into.Delete, j)
		}
		into.Insert = append(into.Insert, j)
		added[j.At] = true
	}
	ours := b.ground.jumps(sdk.Active)
	for _, j := range slices.SortedFunc(maps.Keys(b.jumps), iptables.Jump.Compare) {
		if slices.Contains(jumps, j) {
			continue
		}
		into := last
		switch {
		case j.At.Table == "nat":
			into = middle
		case !slices.Contains(ours, j):
			into = first
		}
		into.Delete = append(into.Delete, j)
	}
}

// script is the whole plan as the iptables-restore of a backend takes it.
func (p plan) script(to iptables.Backend) *iptables.Script {
	s := new(iptables.Script)
	for _, b := range p {
		b.Write(s, to)
	}
	return s
}

// done notes that a plan has been carried out.
func (b *book) done(p plan) {
	for _, block := range p {
		b.doneBlock(block)
	}
}

func (b *book) doneBlock(block iptables.Block) {
	for _, c := range block.Whole {
		if page, ok := b.should[c.ID]; ok && page.text == iptables.Join(c.Rules) {
			b.hold(c.ID, page.text) // one copy of the text for both
			continue
		}
		b.hold(c.ID, iptables.Join(c.Rules))
	}
	for _, id := range block.Remove {
		b.lose(id)
	}
	for _, j := range block.Delete {
		delete(b.jumps, j)
	}
	for _, j := range block.Insert {
		b.jumps[j] = true
	}
}

// pieces cuts a plan that is too big for one go: as many chains, and lines of them, at a
// time as size says. Those that others lead to are written first, so that nothing half-written
// is seen; those that go are all emptied before the first is removed. So are many in
// any case: legacy's program takes a time that grows with the square of those that are
// not empty (33,000: 1.5 s of a processor at once, 0.6 s emptied first).
func (p plan) pieces(size size) []plan {
	if size.holds(p) && !p.removes(manyGo) {
		return []plan{p}
	}
	var cut []plan
	for _, b := range p {
		chains := slices.Clone(b.Whole)
		slices.SortStableFunc(chains, func(x, y iptables.Chain) int { return cmp.Compare(rank(x), rank(y)) })
		parts := size.cut(chains)
		for _, part := range parts[:max(0, len(parts)-1)] {
			cut = append(cut, plan{{Table: b.Table, Whole: part}})
		}
		last := iptables.Block{Table: b.Table, Delete: b.Delete, Insert: b.Insert}
		if len(parts) > 0 {
			last.Whole = parts[len(parts)-1]
		}
		if !last.Empty() {
			cut = append(cut, plan{last})
		}
		for part := range slices.Chunk(b.Remove, size.chains) {
			cut = append(cut, plan{{Table: b.Table, Whole: iptables.Emptied(part)}})
		}
		for part := range slices.Chunk(b.Remove, size.chains) {
			cut = append(cut, plan{{Table: b.Table, Remove: part}})
		}
	}
	return cut
}

// manyGo is how many chains are emptied before they are removed.
const manyGo = 1000

func (p plan) removes(many int) bool {
	return slices.ContainsFunc(p, func(b iptables.Block) bool { return len(b.Remove) > many })
}

// A size is how much one piece of a plan may hold.
type size struct {
	chains int
	lines  int // of chains that are written: one more than a chain has rules
}

func (s size) holds(p plan) bool {
	var all size
	for _, b := range p {
		all.chains += len(b.Whole) + len(b.Remove)
		for _, c := range b.Whole {
			all.lines += 1 + len(c.Rules)
		}
	}
	return all.chains <= s.chains && all.lines <= s.lines
}

// cut divides chains, in order. A chain that is too big by itself is a piece of its own.
func (s size) cut(chains []iptables.Chain) [][]iptables.Chain {
	var parts [][]iptables.Chain
	from, lines := 0, 0
	for i, c := range chains {
		if i > from && (i-from == s.chains || lines+1+len(c.Rules) > s.lines) {
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

// rank orders chains so that each stands behind those it leads to. A chain of a
// tree has its level below the root, and the root none.
func rank(c iptables.Chain) int {
	name := c.ID.Chain
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
	case c.Level > 0:
		return 6 + tree.Deepest - c.Level
	}
	return 0
}

// String is the plan for people, a step a line.
func (p plan) String() string { return strings.Join(p.steps(), "\n") }

func (p plan) steps() []string {
	var steps []string
	for _, b := range p {
		steps = append(steps, b.Steps()...)
	}
	return steps
}
