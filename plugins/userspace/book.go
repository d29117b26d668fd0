// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// A book is what the tables of one family should say, and what they do say as far
// as we know. A frame's chains are written whole; in the growing ones lines come
// and go one by one, so that a change costs what it changes.
type book struct {
	frame   frame
	entries map[key][]line
	should  map[iptables.ID]map[iptables.Rule]int // in growing chains; how many entries need each
	touched map[line]bool

	have  map[iptables.ID][]iptables.Rule // the frame's chains
	grown map[iptables.ID]map[iptables.Rule]bool
	jumps map[jump]bool // into chains of ours
	stray []iptables.ID // chains of ours that nobody needs
}

// A key says what lines are for: a frontend, or the health port of a Service.
type key struct {
	caught place
	health sdk.Name
}

func newBook(family sdk.Family) *book {
	b := &book{
		frame:   frame{family: family},
		entries: make(map[key][]line),
		should:  make(map[iptables.ID]map[iptables.Rule]int),
		touched: make(map[line]bool),
	}
	for _, id := range growing {
		b.should[id] = make(map[iptables.Rule]int)
	}
	b.adopt(nil)
	return b
}

// put makes lines those of key.
func (b *book) put(k key, lines []line) {
	for _, l := range lines {
		b.should[l.in][l.rule]++
		b.touched[l] = true
	}
	for _, l := range b.entries[k] {
		if b.should[l.in][l.rule]--; b.should[l.in][l.rule] == 0 {
			delete(b.should[l.in], l.rule)
		}
		b.touched[l] = true
	}
	if len(lines) == 0 {
		delete(b.entries, k)
		return
	}
	b.entries[k] = lines
}

// adopt takes what the kernel has for what we did.
func (b *book) adopt(t iptables.Tables) {
	b.have = make(map[iptables.ID][]iptables.Rule)
	b.grown = make(map[iptables.ID]map[iptables.Rule]bool)
	b.jumps = make(map[jump]bool)
	b.stray = nil
	fixed := b.frame.chains()
	for id, rules := range t {
		_, isFixed := fixed[id]
		switch {
		case slices.Contains(growing, id):
			b.grow(id, rules)
		case isFixed:
			b.have[id] = rules
		case isOurs(id):
			b.stray = append(b.stray, id)
		default:
			for _, r := range rules {
				if isOurs(iptables.ID{Table: id.Table, Chain: r.Target()}) {
					b.jumps[jump{id, r}] = true
				}
			}
		}
	}
	for id, rules := range b.should {
		for r := range rules {
			b.touched[line{id, r}] = true
		}
	}
}

// grow notes what a growing chain has. One with a line twice is none that we
// wrote, and is written anew.
func (b *book) grow(id iptables.ID, rules []iptables.Rule) {
	found := make(map[iptables.Rule]bool, len(rules))
	for _, r := range rules {
		found[r] = true
	}
	if len(found) != len(rules) {
		return
	}
	b.grown[id] = found
	for r := range found {
		b.touched[line{id, r}] = true
	}
}

// isOurs reports whether a chain is one of ours, or of kube-proxy's userspace mode,
// whose place we take.
func isOurs(id iptables.ID) bool {
	return strings.HasPrefix(id.Chain, "KUBE-PORTALS-") ||
		slices.Contains([]iptables.ID{portsIn, portsOut, portsReject, portsDrop, nonLocal}, id)
}

// shown is the role that the jumps mean.
func (b *book) shown() sdk.Role {
	for j := range b.jumps {
		if j.at == nat("PREROUTING") && j.rule.Target() == container.Chain {
			return sdk.Active
		}
	}
	return sdk.Standby
}

// A block is what changes in one table at one moment.
type block struct {
	table    string
	whole    map[iptables.ID][]iptables.Rule
	add, del []line
	insert   []jump
	delete   []jump
	remove   []iptables.ID
}

// plan finds what must be written so that the tables say what they should, with
// jumps in place. filter first turns away what nat is about to let go of, then nat
// changes, then filter lets go of what nat has taken.
func (b *book) plan(jumps []jump) []block {
	first, middle, last := newBlock("filter"), newBlock("nat"), newBlock("filter")
	into := func(id iptables.ID, late bool) *block {
		switch {
		case id.Table == "nat":
			return middle
		case late:
			return last
		}
		return first
	}
	for id, rules := range b.frame.chains() {
		if have, ok := b.have[id]; !ok || !slices.Equal(have, rules) {
			into(id, false).whole[id] = rules
		}
	}
	for _, id := range growing {
		if b.grown[id] == nil {
			into(id, false).whole[id] = slices.Sorted(maps.Keys(b.should[id]))
		}
	}
	for l := range b.touched {
		should, have := b.should[l.in][l.rule] > 0, b.grown[l.in][l.rule]
		switch {
		case b.grown[l.in] == nil || should == have:
		case should:
			into(l.in, false).add = append(into(l.in, false).add, l)
		default:
			into(l.in, true).del = append(into(l.in, true).del, l)
		}
	}
	for _, j := range jumps {
		if !b.jumps[j] {
			into(j.at, false).insert = append(into(j.at, false).insert, j)
		}
	}
	for j := range b.jumps {
		if !slices.Contains(jumps, j) {
			into(j.at, true).delete = append(into(j.at, true).delete, j)
		}
	}
	for _, id := range b.stray {
		into(id, true).remove = append(into(id, true).remove, id)
	}
	return orderly(first, middle, last)
}

func newBlock(table string) *block {
	return &block{table: table, whole: make(map[iptables.ID][]iptables.Rule)}
}

// orderly are the blocks that change anything, each in an order that is always the
// same.
func orderly(blocks ...*block) []block {
	var all []block
	for _, b := range blocks {
		if len(b.whole)+len(b.add)+len(b.del)+len(b.insert)+len(b.delete)+len(b.remove) == 0 {
			continue
		}
		slices.SortFunc(b.add, compareLines)
		slices.SortFunc(b.del, compareLines)
		slices.SortFunc(b.delete, func(a, c jump) int { return compareLines(line{a.at, a.rule}, line{c.at, c.rule}) })
		slices.SortFunc(b.remove, compareIDs)
		all = append(all, *b)
	}
	return all
}

func compareIDs(a, b iptables.ID) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Chain, b.Chain))
}

func compareLines(a, b line) int { return cmp.Or(compareIDs(a.in, b.in), cmp.Compare(a.rule, b.rule)) }

// write is b as iptables-restore takes it. Every chain is declared before any rule,
// since rules may lead to any of them.
func (b block) write(s *iptables.Script) {
	s.Begin(b.table)
	ids := slices.SortedFunc(maps.Keys(b.whole), compareIDs)
	for _, id := range slices.Concat(ids, b.remove) {
		s.Declare(id.Chain)
	}
	for _, id := range ids {
		s.Append(id.Chain, b.whole[id])
	}
	for _, l := range b.add {
		s.Append(l.in.Chain, []iptables.Rule{l.rule})
	}
	for _, l := range b.del {
		s.Delete(l.in.Chain, l.rule)
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
	for _, id := range slices.SortedFunc(maps.Keys(b.whole), compareIDs) {
		add("write %s (%d rules)", id, len(b.whole[id]))
	}
	for _, l := range b.add {
		add("add to %s: %s", l.in, l.rule)
	}
	for _, l := range b.del {
		add("delete from %s: %s", l.in, l.rule)
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

// done notes that blocks were written.
func (b *book) done(blocks []block) {
	for _, block := range blocks {
		for id, rules := range block.whole {
			if slices.Contains(growing, id) {
				b.grown[id] = make(map[iptables.Rule]bool, len(rules))
				for _, r := range rules {
					b.grown[id][r] = true
				}
				continue
			}
			b.have[id] = rules
		}
		for _, l := range block.add {
			b.grown[l.in][l.rule] = true
		}
		for _, l := range block.del {
			delete(b.grown[l.in], l.rule)
		}
		for _, j := range block.insert {
			b.jumps[j] = true
		}
		for _, j := range block.delete {
			delete(b.jumps, j)
		}
	}
	b.stray = nil
	clear(b.touched)
}
