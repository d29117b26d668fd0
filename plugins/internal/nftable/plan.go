// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// A Plan is what leads from what the kernel has to what is desired.
type Plan[P Wanted[P]] struct {
	Shape
	Fixed   Difference // elements of no Service
	Changes changes[P]
	linked  int // so many of the changes, the first ones, go in together
	table   *Table[P]
}

// RemovedUDP returns the UDP frontends that the plan removes.
func (p Plan[P]) RemovedUDP() []netip.AddrPort {
	removed := make(map[netip.AddrPort]bool)
	each := func(all []Element, f func(netip.AddrPort)) {
		for _, e := range all {
			if protocol, at, ok := p.table.Layout.Frontend(e); ok && protocol == sdk.UDP {
				f(at)
			}
		}
	}
	all := []Difference{p.Fixed}
	for _, c := range p.Changes {
		all = append(all, c.Difference)
	}
	for _, d := range all {
		each(d.Gone, func(at netip.AddrPort) { removed[at] = true })
	}
	for _, d := range all {
		each(d.Come, func(at netip.AddrPort) { delete(removed, at) })
	}
	return slices.Collect(maps.Keys(removed))
}

// A Change leads from what serves a Service to what is desired.
type Change[P any] struct {
	Name sdk.Name
	To   P
	Difference
	unadmits bool // Admitting elements go
}

type changes[P any] []*Change[P]

// Plan is what the table lacks.
func (t *Table[P]) Plan() frame.Plan {
	p := Plan[P]{table: t}
	afresh := t.Have.Otherwise
	if afresh {
		t.Have = t.Have.without()
		t.all = true
	}
	if t.all && len(t.Have.Services) == 0 {
		t.Have.Services = make(map[sdk.Name]P, len(t.desired))
		t.Have.references = make(map[Place]int, len(t.desired))
	}
	p.Changes = make(changes[P], 0, len(t.touched))
	for name := range t.due() {
		have := t.Have.Services[name]
		c := t.change(name, have)
		grown := t.Layout.Grow(have) // the kernel has it already, unless it was just read
		t.shaped = t.Layout.Grow(c.To) || grown || t.shaped
		if !c.Empty() {
			p.Changes = append(p.Changes, c)
		} else {
			t.Have.serves(c)
		}
	}
	slices.SortFunc(p.Changes, func(a, b *Change[P]) int { return cmp.Compare(len(a.Come), len(b.Come)) })
	p.linked = p.Changes.link(t.Layout)
	if t.shaped {
		p.Shape = t.shape(afresh)
	}
	if t.shaped || t.all {
		p.Fixed = t.fixed(p.Changes)
	}
	return p
}

// change leads from one Wanted of a Service to the one that is desired.
func (t *Table[P]) change(name sdk.Name, have P) *Change[P] {
	c := &Change[P]{Name: name, To: t.Layout.Arrange(have, t.desired[name])}
	if c.To.Equal(have) {
		return c
	}
	c.Difference = Diff(have.Elements(name), c.To.Elements(name))
	c.unadmits = slices.ContainsFunc(c.Gone, t.admitting)
	return c
}

func (t *Table[P]) admitting(e Element) bool { return t.Layout.Use(e.Set) == Admitting }

// shape compares the layout.
func (t *Table[P]) shape(afresh bool) Shape {
	s := Shape{afresh: afresh}
	left := maps.Clone(t.Have.Sets)
	for _, set := range t.Layout.Sets() {
		if !left[set.Name] {
			s.Sets = append(s.Sets, set)
		}
		delete(left, set.Name)
	}
	s.unused = slices.Sorted(maps.Keys(left))
	s.compare(t.Have.chains, t.Layout.Chains())
	s.take = t.Conn != nil && !t.Have.taken && t.Have.flags&nftnl.Persist != 0
	return s
}

// fixed compares elements that are of no Service, and those that are otherwise than Services
// have them. Of what changes anyway, a change is left with what is there.
func (t *Table[P]) fixed(all changes[P]) Difference {
	d := Diff(t.Have.fixed, t.Layout.Fixed())
	d.Gone = append(d.Gone, t.Have.Stray...)
	missing := make(map[Place]Element, len(t.Have.Missing))
	for _, e := range t.Have.Missing {
		missing[e.Place()] = e
	}
	for i := range all {
		all[i].Gone = slices.DeleteFunc(all[i].Gone, func(e Element) bool {
			_, lacks := missing[e.Place()]
			delete(missing, e.Place())
			return lacks
		})
	}
	for _, e := range missing {
		d.Come = append(d.Come, e)
	}
	return d
}

// link puts those changes first between which a frontend moves, and those that take one from
// a set of the fixed ones.
func (all changes[P]) link(r Reader[P]) int {
	if !slices.ContainsFunc(all, func(c *Change[P]) bool { return len(c.Gone) > 0 }) {
		return 0
	}
	owner := make(map[Place]int)
	for i, c := range all {
		for _, e := range c.Gone {
			if r.Use(e.Set) != OfMany {
				owner[e.Place()] = i
			}
		}
	}
	linked := make(map[int]bool)
	for i, c := range all {
		for _, e := range c.Come {
			if from, moves := owner[e.Place()]; moves && from != i {
				linked[i], linked[from] = true, true
			}
		}
	}
	var first, rest changes[P]
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
