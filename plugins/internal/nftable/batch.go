// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// flags are those of the table: what it was made with, or is to be made with.
func (t *transaction[P]) flags() uint32 {
	protected := t.table.Protect
	if t.table.Have.there && !t.shape.afresh {
		protected = t.table.Have.flags&nftnl.Persist != 0
	}
	if protected {
		return nftnl.Owner | nftnl.Persist
	}
	return 0
}

// build makes the batch.
func (t *transaction[P]) build() error {
	s := t.shape
	b := nftnl.NewBatch(t.table.nft(), t.table.Name, 0)
	t.batch, t.owners, t.counts, t.shared = b, nil, make(map[string]int), make(map[Place]sharing, len(t.changes))
	b.Grow(t.changes.elements())
	if s.afresh {
		b.DeleteTable()
	}
	if s.afresh || s.take || !t.table.Have.there {
		b.NewTable(t.flags())
	}
	s.make(b)
	t.own(none)
	if err := t.elements(); err != nil {
		return err
	}
	for _, name := range s.gone {
		if !s.makes(name) {
			b.DeleteChain(name)
		}
	}
	for _, name := range s.unused {
		b.DeleteSet(name)
	}
	t.own(none)
	return nil
}

// make makes sets and chains and fills these. Chains that are emptied are so first: they may lead
// to one that goes.
func (s Shape) make(b *nftnl.Batch) {
	for _, set := range s.Sets {
		b.NewSet(set)
	}
	for _, name := range s.gone {
		b.FlushChain(name)
		if s.makes(name) {
			b.DeleteChain(name)
		}
	}
	for _, c := range s.filled {
		b.FlushChain(c.Name)
	}
	for _, c := range s.Made {
		b.NewChain(c.Name, c.Hook)
	}
	for _, some := range [][]Chain{s.Made, s.filled} {
		for _, c := range some {
			for _, r := range c.Rules {
				b.NewRule(c.Name, r...)
			}
		}
	}
}

// own says that the operations since the last one are of a change, or of none.
func (t *transaction[P]) own(change int) {
	for len(t.owners) < t.batch.Len() {
		t.owners = append(t.owners, change)
	}
}

// elements removes and adds elements. One that Services share is there while any has it.
func (t *transaction[P]) elements() error {
	for _, e := range t.fixed.Gone {
		t.remove(e, none)
	}
	for i, c := range t.changes {
		for _, e := range c.Gone {
			if t.table.Layout.Use(e.Set) == OfMany {
				t.share(e, -1, i)
			} else {
				t.remove(e, i)
			}
		}
		for _, e := range c.Come {
			if t.table.Layout.Use(e.Set) == OfMany {
				t.share(e, 1, i)
			}
		}
	}
	var come []Place
	for at, s := range t.shared {
		switch had := t.table.Have.references[at]; {
		case had > 0 && had+s.more == 0:
			t.remove(at.element(), s.change)
		case had == 0 && s.more > 0:
			come = append(come, at)
		}
	}
	if err := t.leave(); err != nil {
		return err
	}
	for _, e := range t.fixed.Come {
		t.insert(e, none)
	}
	for i, c := range t.changes {
		for _, e := range c.Come {
			if t.table.Layout.Use(e.Set) != OfMany {
				t.insert(e, i)
			}
		}
	}
	for _, at := range come {
		t.insert(at.element(), t.shared[at].change)
	}
	return nil
}

// leave removes what packets left. An element that goes by itself meanwhile could not be removed any
// more, so each is added first, which changes nothing where it is there.
func (t *transaction[P]) leave() error {
	if !slices.ContainsFunc(t.changes, func(c *Change[P]) bool { return c.unadmits }) {
		return nil
	}
	left, err := t.table.Layout.Left(t.context, t.table.List(t.table.Conn), t.changes)
	if err != nil {
		return err
	}
	for _, do := range []func(string, nftnl.Element){t.batch.Add, t.batch.Remove} {
		for _, e := range left {
			do(e.Set, e.Element.Element)
			t.own(e.Change)
		}
	}
	return nil
}

// share notes that a change has one Service more or less have an element that Services share.
func (t *transaction[P]) share(e Element, by, change int) {
	at := e.Place()
	t.shared[at] = sharing{t.shared[at].more + by, change}
}

// remove and insert are operations on one Element, which are of a change.

func (t *transaction[P]) remove(e Element, change int) {
	t.batch.Remove(e.Set, e.Element)
	t.counts[e.Set]--
	t.own(change)
}

func (t *transaction[P]) insert(e Element, change int) {
	t.batch.Add(e.Set, e.Element)
	t.counts[e.Set]++
	t.own(change)
}
