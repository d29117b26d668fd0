// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// A plan is what leads from what the kernel has to what is desired.
type plan struct {
	family *family
	shape  shape
	fixed  difference // elements of no Service
	linked int        // so many of the changes, the first ones, go in together
	changes
}

// changes are those of Services.
type changes []*change

// A change leads from what serves a Service to what is desired.
type change struct {
	name  sdk.Name
	to    wanted
	purge bool // endpoints go at which clients were kept
	difference
}

// A difference is elements that go and that come. One that is replaced is in both.
type difference struct{ gone, come []element }

// A shape is what differs in sets and chains: those that are new or other than they were, and
// the names of those that go.
type shape struct {
	afresh bool // the table is removed first, with all that is in it
	take   bool // nothing differs, but the table is to become this process's own
	sets   []nftnl.Set
	made   []chain // that are not there, or not at their hook
	filled []chain // whose rules differ
	gone   []string
	unused []string // sets
}

// diff is what leads from elements to others.
func diff(old, desired []element) (d difference) {
	if len(old) == 0 {
		return difference{come: desired}
	}
	was := make(map[place]element, len(old))
	for _, e := range old {
		was[e.place()] = e
	}
	for _, e := range desired {
		before, there := was[e.place()]
		if !there || before != e {
			d.come = append(d.come, e)
		}
		if !there || before == e {
			delete(was, e.place())
		}
	}
	for _, e := range old {
		if _, left := was[e.place()]; left {
			d.gone = append(d.gone, e)
			delete(was, e.place())
		}
	}
	return d
}

// changeOf leads from one wanted of a Service to another, which gets a free number if it is to
// have one.
func changeOf(name sdk.Name, have, desired wanted, free func() number) *change {
	c := &change{name: name, to: desired.arranged(have, free)}
	if c.to.equal(have) {
		return c
	}
	c.difference = diff(have.elements(name), c.to.elements(name))
	c.purge = slices.ContainsFunc(c.gone, element.member)
	return c
}

// A seen is a chain as the kernel has it: as it was read, or as it was written.
type seen struct {
	chain
	read []nftnl.Observed // its rules; only if it was read
	raw  bool
}

func (s seen) is(c chain) bool {
	if !s.raw {
		return slices.EqualFunc(s.rules, c.rules, func(a, b rule) bool { return slices.Equal(a, b) })
	}
	return slices.EqualFunc(s.read, c.rules, func(o nftnl.Observed, r rule) bool { return o.Is(r) })
}

func (s seen) at(c chain) bool {
	return s.hook == nil && c.hook == nil || s.hook != nil && c.hook != nil && *s.hook == *c.hook
}

// compare notes which chains differ. One that was read and does not is known from now on.
func (s *shape) compare(have map[string]seen, desired []chain) {
	left := maps.Clone(have)
	for _, c := range desired {
		was, there := have[c.name]
		delete(left, c.name)
		switch {
		case !there:
			s.made = append(s.made, c)
		case !was.at(c):
			s.gone = append(s.gone, c.name)
			s.made = append(s.made, c)
		case !was.is(c):
			s.filled = append(s.filled, c)
		case was.raw:
			have[c.name] = seen{chain: c}
		}
	}
	s.gone = append(s.gone, slices.Sorted(maps.Keys(left))...)
}

func (c change) empty() bool { return len(c.gone)+len(c.come) == 0 }

// Steps are the plan for people, a line for each Service and each chain.
func (p plan) Steps() []string {
	var all []string
	for _, s := range p.steps() {
		all = append(all, s.text)
	}
	return all
}

// A step is a line of a plan, and what differs there: elements, or rules of a chain.
type step struct {
	text string
	difference
	chain *chain
}

func (p plan) steps() []step {
	var all []step
	say := func(format string, args ...any) *step {
		all = append(all, step{text: fmt.Sprintf("%s %s: ", p.family.node.Family, table) + fmt.Sprintf(format, args...)})
		return &all[len(all)-1]
	}
	s := p.shape
	if s.afresh {
		say("make the table anew")
	}
	for _, set := range s.sets {
		say("add set %s", set.Name)
	}
	for _, c := range s.made {
		say("add chain %s with %d rules", c.name, len(c.rules))
	}
	for i, c := range s.filled {
		say("rewrite chain %s with %d rules", c.name, len(c.rules)).chain = &s.filled[i]
	}
	for _, name := range slices.Concat(s.gone, s.unused) {
		say("remove %s", name)
	}
	if d := p.fixed; len(d.gone)+len(d.come) > 0 {
		say("remove %d elements%s, add %d%s", len(d.gone), setsOf(d.gone), len(d.come), setsOf(d.come)).difference = d
	}
	for _, c := range slices.SortedFunc(slices.Values(p.changes), func(a, b *change) int { return a.name.Compare(b.name) }) {
		say("%s: remove %d elements%s, add %d%s", c.name, len(c.gone), setsOf(c.gone), len(c.come), setsOf(c.come)).difference = c.difference
	}
	return all
}

// setsOf are the sets that elements are of, for people.
func setsOf(elements []element) string {
	var names []string
	for _, e := range elements {
		if !slices.Contains(names, e.set) {
			names = append(names, e.set)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// link puts those changes first between which a frontend moves, and those that take one from
// a set of the fixed ones.
func (all changes) link() int {
	if !slices.ContainsFunc(all, func(c *change) bool { return len(c.gone) > 0 }) {
		return 0
	}
	owner := make(map[place]int)
	for i, c := range all {
		for _, e := range c.gone {
			if !e.shared() {
				owner[e.place()] = i
			}
		}
	}
	linked := make(map[int]bool)
	for i, c := range all {
		for _, e := range c.come {
			if from, moves := owner[e.place()]; moves && from != i {
				linked[i], linked[from] = true, true
			}
		}
	}
	var first, rest changes
	for i, c := range all {
		if linked[i] {
			first = append(first, c)
		} else {
			rest = append(rest, c)
		}
	}
	copy(all, append(first, rest...))
	return len(first)
}
