// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"context"
	"maps"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// An Observed is what the kernel has, as it was read, and then as it was written.
type Observed[P Wanted[P]] struct {
	Services  map[sdk.Name]P
	Sets      map[string]bool
	Elements  int  // in all sets, but for those that packets fill
	Otherwise bool // a set has another shape than it should have: another version made it

	// Stray are elements of no Service, and Missing those that Services lack.
	Stray, Missing []Element

	generation uint32 // of the rule set, when it was read
	batches    uint32 // of this process, until then
	there      bool   // the table is
	taken      bool   // this process's socket owns it
	flags      uint32
	chains     map[string]seen
	references map[Place]int  // how many Services have an element of many
	counts     map[string]int // elements, by set
	fixed      []Element
}

// Chain reports whether there is a chain of that name.
func (o Observed[P]) Chain(name string) bool {
	_, there := o.chains[name]
	return there
}

// without is an o that has no table.
func (o Observed[P]) without() Observed[P] {
	return Observed[P]{
		generation: o.generation, batches: o.batches, there: o.there, Otherwise: o.Otherwise,
		Sets: make(map[string]bool), chains: make(map[string]seen), Services: make(map[sdk.Name]P),
		references: make(map[Place]int), counts: make(map[string]int),
	}
}

// serves notes that a change was made.
func (o *Observed[P]) serves(c *Change[P]) {
	if c.To.Empty() {
		delete(o.Services, c.Name)
	} else {
		o.Services[c.Name] = c.To
	}
}

// Read reads the table by conn, which is used by no other call meanwhile. It may be called beside
// other calls.
func (t *Table[P]) Read(ctx context.Context, conn *nftnl.Conn) (Observed[P], error) {
	o := Observed[P]{}.without()
	list := t.List(conn)
	var err error
	if o.generation, err = conn.Generation(ctx); err != nil {
		return o, err
	}
	table, err := list.Table(ctx)
	if err != nil || table == nil {
		return o, err
	}
	o.there, o.flags = true, table.Flags
	chains, err := list.Chains(ctx)
	if err != nil {
		return o, err
	}
	rules, err := list.Rules(ctx, "")
	if err != nil {
		return o, err
	}
	for name, c := range chains {
		o.chains[name] = seen{Chain: Chain{Name: name, Hook: c.Hook}, read: rules[name], raw: true}
	}
	sets, err := list.Sets(ctx)
	if err != nil {
		return o, err
	}
	dump := make(Dump)
	for name, s := range sets {
		o.Sets[name] = true
		if s.Timeout > 0 {
			continue // its elements come from packets
		}
		elements, err := list.Elements(ctx, name)
		if err != nil {
			return o, err
		}
		in := make(map[string]nftnl.Element, len(elements))
		for _, e := range elements {
			in[e.Key+e.KeyEnd] = e
		}
		dump[name] = in
		o.counts[name] = len(elements)
		o.Elements += len(elements)
	}
	o.Otherwise = slices.ContainsFunc(t.Layout.May(maps.Keys(dump)), func(s nftnl.Set) bool {
		seen, there := sets[s.Name]
		return there && !seen.Fits(s)
	})
	o.understand(dump, t.Layout)
	return o, nil
}

// understand finds out which Services the elements serve, and what is of none.
func (o *Observed[P]) understand(d Dump, r Reader[P]) {
	o.Services = r.Services(d)
	mine := make(map[string]bool)
	for _, s := range r.May(maps.Keys(d)) {
		mine[s.Name] = true
	}
	for name, w := range o.Services {
		for _, e := range w.Elements(name) {
			seen, there := d[e.Set][e.Key+e.KeyEnd]
			switch {
			case r.Use(e.Set) == OfMany:
				o.references[e.Place()]++
			case there && seen == e.Element:
				delete(d[e.Set], e.Key+e.KeyEnd)
				continue
			}
			if !there || seen != e.Element {
				o.Missing = append(o.Missing, e)
			}
		}
	}
	for set, elements := range d {
		for _, k := range elements {
			switch e := (Element{set, k}); {
			case r.Use(set) == OfNone:
				o.fixed = append(o.fixed, e)
			case mine[set] && (o.references[e.Place()] == 0 || k != nftnl.Element{Key: k.Key}):
				o.Stray = append(o.Stray, e)
			}
		}
	}
}
