// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// flags are those of the table: what it was made with, or is to be made with.
func (t *transaction) flags() uint32 {
	protected := t.family.options.Protect == "auto"
	if t.family.have.there && !t.shape.afresh {
		protected = t.family.have.flags&nftnl.Persist != 0
	}
	if protected {
		return nftnl.Owner | nftnl.Persist
	}
	return 0
}

// build makes the batch.
func (t *transaction) build() error {
	f, s := t.family, t.shape
	b := nftnl.NewBatch(f.node.nft(), t.table, 0)
	t.batch, t.owners, t.counts, t.shared = b, nil, make(map[string]int), make(map[place]sharing, len(t.changes))
	b.Grow(t.changes.elements())
	if s.afresh {
		b.DeleteTable()
	}
	if s.afresh || s.take || !f.have.there {
		b.NewTable(t.flags())
	}
	for _, set := range s.sets {
		b.NewSet(set)
	}
	t.rules(s)
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

// makes reports whether a chain that goes is made anew, at another hook.
func (s shape) makes(name string) bool {
	for _, c := range s.made {
		if c.name == name {
			return true
		}
	}
	return false
}

// rules makes chains and fills them. Those that are emptied are so first: they may lead to one
// that goes.
func (t *transaction) rules(s shape) {
	b := t.batch
	for _, name := range s.gone {
		b.FlushChain(name)
		if s.makes(name) {
			b.DeleteChain(name)
		}
	}
	for _, c := range s.filled {
		b.FlushChain(c.name)
	}
	for _, c := range s.made {
		b.NewChain(c.name, c.hook)
	}
	for _, some := range [][]chain{s.made, s.filled} {
		for _, c := range some {
			for _, r := range c.rules {
				b.NewRule(c.name, r...)
			}
		}
	}
}

// own says that the operations since the last one are of a change, or of none.
func (t *transaction) own(change int) {
	for len(t.owners) < t.batch.Len() {
		t.owners = append(t.owners, change)
	}
}

// elements removes and adds elements. One that Services share is there while any has it.
func (t *transaction) elements() error {
	for _, e := range t.fixed.gone {
		t.remove(e, none)
	}
	for i, c := range t.changes {
		for _, e := range c.gone {
			if e.shared() {
				t.share(e, -1, i)
			} else {
				t.remove(e, i)
			}
		}
		for _, e := range c.come {
			if e.shared() {
				t.share(e, 1, i)
			}
		}
	}
	var come []place
	for at, s := range t.shared {
		switch had := t.family.have.references[at]; {
		case had > 0 && had+s.more == 0:
			t.remove(at.element(), s.change)
		case had == 0 && s.more > 0:
			come = append(come, at)
		}
	}
	if err := t.purge(); err != nil {
		return err
	}
	for _, e := range t.fixed.come {
		t.insert(e, none)
	}
	for i, c := range t.changes {
		for _, e := range c.come {
			if !e.shared() {
				t.insert(e, i)
			}
		}
	}
	for _, at := range come {
		t.insert(at.element(), t.shared[at].change)
	}
	return nil
}

// share notes that a change has one Service more or less have an element that Services share.
func (t *transaction) share(e element, by, change int) {
	at := e.place()
	t.shared[at] = sharing{t.shared[at].more + by, change}
}

// remove and insert are operations on one element, which are of a change.

func (t *transaction) remove(e element, change int) {
	t.batch.Remove(e.set, e.Element)
	t.counts[e.set]--
	t.own(change)
}

func (t *transaction) insert(e element, change int) {
	t.batch.Add(e.set, e.Element)
	t.counts[e.set]++
	t.own(change)
}
