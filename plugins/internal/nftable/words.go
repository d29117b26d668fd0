// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// Steps are the plan for people, a line for each Service and each chain.
func (p Plan[P]) Steps() []string {
	var all []string
	for _, s := range p.steps() {
		all = append(all, s.text)
	}
	return all
}

// A step is a line of a plan, and what differs there: elements, or rules of a chain.
type step struct {
	text string
	Difference
	chain *Chain
}

func (p Plan[P]) steps() []step {
	var all []step
	say := func(format string, args ...any) *step {
		all = append(all, step{text: fmt.Sprintf("%s %s: ", p.table.Of, p.table.Name) + fmt.Sprintf(format, args...)})
		return &all[len(all)-1]
	}
	s := p.Shape
	if s.afresh {
		say("make the table anew")
	}
	for _, set := range s.Sets {
		say("add set %s", set.Name)
	}
	for _, c := range s.Made {
		say("add chain %s with %d rules", c.Name, len(c.Rules))
	}
	for i, c := range s.filled {
		say("rewrite chain %s with %d rules", c.Name, len(c.Rules)).chain = &s.filled[i]
	}
	for _, name := range slices.Concat(s.gone, s.unused) {
		say("remove %s", name)
	}
	if d := p.Fixed; len(d.Gone)+len(d.Come) > 0 {
		say("remove %d elements%s, add %d%s", len(d.Gone), setsOf(d.Gone), len(d.Come), setsOf(d.Come)).Difference = d
	}
	for _, c := range slices.SortedFunc(slices.Values(p.Changes), func(a, b *Change[P]) int { return a.Name.Compare(b.Name) }) {
		say("%s: remove %d elements%s, add %d%s", c.Name, len(c.Gone), setsOf(c.Gone), len(c.Come), setsOf(c.Come)).Difference = c.Difference
	}
	return all
}

// setsOf are the sets that elements are of, for people.
func setsOf(elements []Element) string {
	var names []string
	for _, e := range elements {
		if !slices.Contains(names, e.Set) {
			names = append(names, e.Set)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// mostListed is how many elements that come, and that go, are named of one step: a set that was
// flushed may lack thousands.
const mostListed = 20

// Details are the steps and, below each, the elements that come (+) and those that go (-), or
// where the rules of a chain begin to differ.
func (p Plan[P]) Details() []string {
	fields := p.fields()
	var all []string
	for _, s := range p.steps() {
		all = append(all, s.text)
		if s.chain != nil {
			all = append(all, "  "+p.table.Have.chains[s.chain.Name].differs(*s.chain))
		}
		all = append(all, listed("  + ", s.Come, fields)...)
		all = append(all, listed("  - ", s.Gone, fields)...)
	}
	return all
}

// fields are the sets that there may be, by name.
func (p Plan[P]) fields() map[string]nftnl.Set {
	all := make(map[string]nftnl.Set)
	for _, s := range slices.Concat(p.table.Layout.May(maps.Keys(p.table.Have.Sets)), p.Shape.Sets) {
		all[s.Name] = s
	}
	return all
}

// listed are elements, one a line.
func listed(sign string, elements []Element, sets map[string]nftnl.Set) []string {
	var all []string
	for _, e := range elements[:min(len(elements), mostListed)] {
		all = append(all, sign+e.words(sets[e.Set]))
	}
	if more := len(elements) - mostListed; more > 0 {
		all = append(all, fmt.Sprintf("%sand %d more elements", sign, more))
	}
	return all
}

// words are an element as nft lists it, behind the name of its set.
func (e Element) words(set nftnl.Set) string {
	text := e.Set + " " + nftnl.Words(set.Key, e.Key)
	if e.KeyEnd != "" {
		text += " to " + nftnl.Words(set.Key, e.KeyEnd)
	}
	if e.Data != "" {
		text += " : " + nftnl.Words(set.Data, e.Data)
	}
	return text
}
