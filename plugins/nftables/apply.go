// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// commits counts the batches that this process has written, in both families: the rule set's
// generation grows with each.
type commits struct{ n atomic.Uint32 }

func (c *commits) count() uint32 { return c.n.Load() }

// chunk is how many elements go in together. The kernel's work on a transaction grows faster
// than its size.
const chunk = 10_000

// Apply writes the plan: the layout, what is fixed and the linked changes first, then the
// others in chunks.
func (p plan) Apply(ctx context.Context) (failed []sdk.Failure, err error) {
	f := p.family
	if f.conn == nil {
		return nil, errors.New("this process has no socket to write by")
	}
	if p.shape.take {
		// A batch of its own: the kernel takes no base chain in one that changes the owner.
		if _, err := (&transaction{family: f, table: table, context: ctx, shape: shape{take: true}}).write(); err != nil {
			return nil, err
		}
		p.shape.take = false
	}
	rest := p.changes
	for first := true; first || len(rest) > 0; first = false {
		t := transaction{family: f, table: table, context: ctx}
		n := rest.upTo(chunk)
		if first {
			t.shape, t.fixed = p.shape, p.fixed
			n = max(n, p.linked)
		}
		if p.shape.afresh {
			n = len(rest) // what serves now goes with the table
		}
		t.changes = rest[:n]
		bad, err := t.write()
		failed = append(failed, bad...)
		if err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	clear(f.touched)
	f.all, f.shaped = false, false
	return failed, nil
}

// upTo is how many of the changes have no more elements than some number; at least one.
func (all changes) upTo(elements int) int {
	for i, c := range all {
		if elements -= len(c.gone) + len(c.come); elements < 0 && i > 0 {
			return i
		}
	}
	return len(all)
}

// A transaction is what goes in together.
type transaction struct {
	family  *family
	table   string
	context context.Context // of the call that writes it
	shape   shape
	fixed   difference
	changes changes

	batch      *nftnl.Batch
	owners     []int // of each operation: the change that it is of, or none
	counts     map[string]int
	references map[element]int
}

const none = -1

// write writes the transaction. Changes of which the kernel takes an element for a mistake are
// left out, and their Services failed.
func (t *transaction) write() (failed []sdk.Failure, err error) {
	for {
		if err := t.build(); err != nil || t.batch.Len() == 0 {
			return failed, err
		}
		err := t.family.conn.Send(t.context, t.batch)
		var faults nftnl.Faults
		switch {
		case err == nil:
			t.done()
			return failed, nil
		case !errors.As(err, &faults):
			return nil, err
		case t.unprotected(faults):
			continue
		}
		bad, err := t.blame(faults)
		if err != nil {
			return nil, err
		}
		failed = append(failed, bad...)
	}
}

// unprotected has the table be made without an owner, where the kernel has none that persist.
func (t *transaction) unprotected(faults nftnl.Faults) bool {
	f := t.family
	if f.have.there || f.options.Protect == "never" || !errors.Is(faults, syscall.EOPNOTSUPP) && !errors.Is(faults, syscall.EINVAL) || faults[0].First != 0 {
		return false
	}
	f.log.Info("the kernel cannot protect the table from other programs", "family", f.node.Family)
	f.options.Protect = "never"
	return true
}

// blame leaves out the changes whose elements are bad. Where something else is there than was
// known, or nothing, all is to be read again first.
func (t *transaction) blame(faults nftnl.Faults) ([]sdk.Failure, error) {
	bad, stale := make(map[int]error), false
	for _, fault := range faults {
		if fault.First != fault.Last || t.owners[fault.First] == none {
			return nil, fmt.Errorf("write table %s: %w", table, faults)
		}
		bad[t.owners[fault.First]] = nftnl.Faults{fault}
		stale = stale || fault.Errno == syscall.EEXIST || fault.Errno == syscall.ENOENT || fault.Errno == syscall.EBUSY
	}
	var failed []sdk.Failure
	var suspects []sdk.Name
	var left changes
	for i, c := range t.changes {
		if err, is := bad[i]; is {
			failed = append(failed, sdk.Failure{Name: c.name, Err: err})
			suspects = append(suspects, c.name)
		} else {
			left = append(left, c)
		}
	}
	if stale {
		return nil, &frame.Refused{Suspects: suspects, Err: fmt.Errorf("write table %s: %w", table, faults)}
	}
	t.changes = left
	return failed, nil
}

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
	t.batch, t.owners, t.counts, t.references = b, nil, make(map[string]int), make(map[element]int)
	all := []shape{s}
	for _, c := range t.changes {
		all = append(all, c.shape)
	}
	if s.afresh {
		b.DeleteTable()
	}
	if s.afresh || s.take || !f.have.there {
		b.NewTable(t.flags())
	}
	for _, s := range all {
		for _, set := range s.sets {
			b.NewSet(set)
		}
	}
	for _, s := range all {
		t.rules(s)
	}
	t.own(none)
	if err := t.elements(); err != nil {
		return err
	}
	for _, s := range all {
		for _, name := range s.gone {
			if !s.makes(name) {
				b.DeleteChain(name)
			}
		}
		for _, name := range s.unused {
			b.DeleteSet(name)
		}
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
	type owned struct {
		element
		by int
	}
	var gone, come []owned
	last := make(map[element]int) // of those that shared elements change for
	add := func(d difference, by int) {
		for _, e := range d.gone {
			if e.shared() && by != none {
				t.references[e]--
				last[e] = by
			} else {
				gone = append(gone, owned{e, by})
			}
		}
		for _, e := range d.come {
			if e.shared() && by != none {
				t.references[e]++
				last[e] = by
			} else {
				come = append(come, owned{e, by})
			}
		}
	}
	add(t.fixed, none)
	for i, c := range t.changes {
		add(c.difference, i)
	}
	for e, delta := range t.references {
		switch was := t.family.have.references[e]; {
		case was == 0 && delta > 0:
			come = append(come, owned{e, last[e]})
		case was > 0 && was+delta == 0:
			gone = append(gone, owned{e, last[e]})
		}
	}
	for _, e := range gone {
		t.batch.Remove(e.set, e.Element)
		t.own(e.by)
		t.counts[e.set]--
	}
	if err := t.purge(); err != nil {
		return err
	}
	for _, e := range come {
		t.batch.Add(e.set, e.Element)
		t.own(e.by)
		t.counts[e.set]++
	}
	return nil
}

// purge takes clients from the affinity lists of endpoints that are gone: the others are
// written anew, since one that goes by itself meanwhile cannot be removed any more.
func (t *transaction) purge() error {
	f := t.family
	for i, c := range t.changes {
		for _, p := range c.purges {
			clients, err := f.conn.List(f.node.nft(), table).Elements(t.context, p.set)
			if err != nil {
				return err
			}
			t.batch.FlushSet(p.set)
			for _, e := range clients {
				if !p.gone[e.Data] {
					t.batch.Add(p.set, e)
				}
			}
			t.own(i)
		}
	}
	return nil
}

// done notes what the kernel has now.
func (t *transaction) done() {
	f := t.family
	f.commits.n.Add(1)
	if t.shape.afresh || !f.have.there || t.shape.take {
		f.have.flags = t.flags()
		f.have.taken = f.have.flags&nftnl.Owner != 0
	}
	f.have.there, f.have.otherwise = true, false
	for _, s := range t.shape.sets {
		f.have.sets[s.Name] = true
	}
	for _, name := range t.shape.gone {
		delete(f.have.chains, name)
	}
	for _, some := range [][]chain{t.shape.made, t.shape.filled} {
		for _, c := range some {
			f.have.chains[c.name] = seen{chain: c}
		}
	}
	f.have.unused = nil
	f.have.stray, f.have.missing = nil, nil
	f.have.own = slices.DeleteFunc(f.have.own, func(e element) bool { return slices.Contains(t.fixed.gone, e) })
	f.have.own = append(f.have.own, slices.DeleteFunc(slices.Clone(t.fixed.come), func(e element) bool { return e.set != "own" })...)
	for set, n := range t.counts {
		f.have.counts[set] += n
	}
	for e, n := range t.references {
		if f.have.references[e] += n; f.have.references[e] <= 0 {
			delete(f.have.references, e)
		}
	}
	for _, c := range t.changes {
		for _, s := range c.shape.sets {
			f.have.sets[s.Name] = true
		}
		for _, name := range c.shape.unused {
			delete(f.have.sets, name)
			delete(f.have.counts, name)
		}
		f.have.serves(c)
	}
}
