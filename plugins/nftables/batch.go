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
	t.batch, t.owners, t.counts, t.references = b, nil, make(map[string]int), make(map[place]int)
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
	last := make(map[element]int) // the change that a shared one changes for
	for i, c := range t.changes {
		for _, e := range c.gone {
			if e.shared() {
				t.references[e.place()]--
				last[e] = i
			}
		}
		for _, e := range c.come {
			if e.shared() {
				t.references[e.place()]++
				last[e] = i
			}
		}
	}
	t.remove(t.fixed.gone, none)
	for i, c := range t.changes {
		t.remove(c.gone, i)
	}
	have := t.family.have.references
	for e, i := range last {
		if have[e.place()] > 0 && have[e.place()]+t.references[e.place()] == 0 {
			t.batch.Remove(e.set, e.Element)
			t.count(e, -1, i)
		}
	}
	if err := t.purge(); err != nil {
		return err
	}
	t.insert(t.fixed.come, none)
	for i, c := range t.changes {
		t.insert(c.come, i)
	}
	for e, i := range last {
		if have[e.place()] == 0 && t.references[e.place()] > 0 {
			t.batch.Add(e.set, e.Element)
			t.count(e, 1, i)
		}
	}
	return nil
}

// remove removes elements of a change; those that are shared only if they are of none.
func (t *transaction) remove(elements []element, change int) {
	for _, e := range elements {
		if change == none || !e.shared() {
			t.batch.Remove(e.set, e.Element)
			t.count(e, -1, change)
		}
	}
}

// insert is remove for elements that come.
func (t *transaction) insert(elements []element, change int) {
	for _, e := range elements {
		if change == none || !e.shared() {
			t.batch.Add(e.set, e.Element)
			t.count(e, 1, change)
		}
	}
}

// count notes an operation on an element: how many there are in its set, and of which change
// it is.
func (t *transaction) count(e element, by, change int) {
	t.counts[e.set] += by
	t.own(change)
}
