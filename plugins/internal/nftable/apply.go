// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// Chunk is how many elements go in together. The kernel's work on a transaction grows faster
// than its size.
const Chunk = 10_000

// Apply writes the plan: the layout, what is fixed and the linked changes first, then the
// others in chunks.
func (p Plan[P]) Apply(ctx context.Context) (failed []sdk.Failure, err error) {
	if p.table.Conn == nil {
		return nil, errors.New("this process has no socket to write by")
	}
	if p.take {
		// A batch of its own: the kernel takes no base chain in one that changes the owner.
		t := transaction[P]{table: p.table, context: ctx, shape: Shape{take: true}}
		if _, err := t.write(); err != nil {
			return nil, err
		}
		p.take = false
	}
	rest := p.Changes
	for first := true; first || len(rest) > 0; first = false {
		t := transaction[P]{table: p.table, context: ctx}
		n := rest.upTo(Chunk)
		if first {
			t.shape, t.fixed = p.Shape, p.Fixed
			n = max(n, p.linked)
		}
		if p.afresh {
			n = len(rest) // what serves now goes with the table
		}
		t.changes = rest[:n]
		if admitting := t.changes.unadmit(p.table.admitting); len(admitting) > 0 {
			first := transaction[P]{table: p.table, context: ctx, fixed: Difference{Gone: admitting}}
			if _, err := first.write(); err != nil {
				return nil, err
			}
		}
		bad, err := t.write()
		failed = append(failed, bad...)
		if err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	p.table.touched = make(map[sdk.Name]bool) // small again: to walk a map costs its largest size
	p.table.all, p.table.shaped = false, false
	p.table.Applied()
	return failed, nil
}

// unadmit takes out of the changes the admitting elements that go.
func (all changes[P]) unadmit(admitting func(Element) bool) (gone []Element) {
	for _, c := range all {
		if c.unadmits {
			gone = append(gone, slices.DeleteFunc(slices.Clone(c.Gone), func(e Element) bool { return !admitting(e) })...)
			c.Gone = slices.DeleteFunc(c.Gone, admitting)
		}
	}
	return gone
}

// elements is how many go and come in all.
func (all changes[P]) elements() (n int) {
	for _, c := range all {
		n += len(c.Gone) + len(c.Come)
	}
	return n
}

// upTo is how many of the changes have no more elements than some number; at least one.
func (all changes[P]) upTo(elements int) int {
	for i, c := range all {
		if elements -= len(c.Gone) + len(c.Come); elements < 0 && i > 0 {
			return i
		}
	}
	return len(all)
}

// A transaction is what goes in together.
type transaction[P Wanted[P]] struct {
	table   *Table[P]
	context context.Context // of the call that writes it
	shape   Shape
	fixed   Difference
	changes changes[P]

	batch  *nftnl.Batch
	owners []int // of each operation: the change that it is of, or none
	counts map[string]int
	shared map[Place]sharing
}

// A sharing is what the changes do to an element that Services share: how many more have it, and
// the last of the changes.
type sharing struct{ more, change int }

const none = -1

// write writes the transaction. Changes of which the kernel takes an element for a mistake are
// left out, and their Services failed.
func (t *transaction[P]) write() (failed []sdk.Failure, err error) {
	for {
		if err := t.build(); err != nil {
			return nil, err
		}
		if t.batch.Len() == 0 { // a shared element is of fewer Services, or of more
			t.done()
			return failed, nil
		}
		err := t.table.Conn.Send(t.context, t.batch)
		var faults nftnl.Faults
		switch {
		case err == nil:
			t.table.Commits.n.Add(1)
			t.done()
			return failed, nil
		case errors.As(err, &faults) && t.unprotected(faults):
			continue
		}
		t.refused()
		if faults == nil {
			return nil, err
		}
		if errors.Is(err, syscall.EPERM) {
			return nil, fmt.Errorf("table %s %s is %w", Word(t.table.Of), t.table.Name, owned(t.context, t.table.List(t.table.Conn), err))
		}
		bad, err := t.blame(faults)
		if err != nil {
			return nil, err
		}
		failed = append(failed, bad...)
	}
}

// refused counts a transaction that did not go in.
func (t *transaction[P]) refused() {
	t.table.Refused++
	come := len(t.fixed.Come)
	for _, c := range t.changes {
		come += len(c.Come)
	}
	if come == 0 {
		t.table.Removals++
	}
}

// owned says which process keeps a table from being written, as the kernel has it: by the
// number of its socket, which of its first one is that of the process; and what ends it.
func owned(ctx context.Context, list nftnl.Listing, err error) error {
	t, unread := list.Table(ctx)
	if unread != nil || t == nil || t.Owner == 0 {
		return err
	}
	name, hidden := os.ReadFile(fmt.Sprintf("/proc/%d/comm", t.Owner))
	if hidden != nil {
		return fmt.Errorf("owned by the socket with number %d of /proc/net/netlink: %w", t.Owner, err)
	}
	program := strings.TrimSpace(string(name))
	return fmt.Errorf("owned by process %d (%s): %w; try: kill -9 %[1]d", t.Owner, program, err)
}

// unprotected has the table be made without an owner, where the kernel has none that persist.
func (t *transaction[P]) unprotected(faults nftnl.Faults) bool {
	refused := errors.Is(faults, syscall.EOPNOTSUPP) || errors.Is(faults, syscall.EINVAL)
	if t.table.Have.there || !t.table.Protect || !refused || faults[0].First != 0 {
		return false
	}
	t.table.Log.Info("the kernel cannot protect the table from other programs", "family", t.table.Of)
	t.table.Protect = false
	return true
}

// blame leaves out the changes whose elements are bad. Where something else is there than was
// known, or nothing, all is to be read again first.
func (t *transaction[P]) blame(faults nftnl.Faults) ([]sdk.Failure, error) {
	others := []syscall.Errno{syscall.EEXIST, syscall.ENOENT, syscall.EBUSY}
	bad, stale := make(map[int]error), false
	for _, fault := range faults {
		if fault.First != fault.Last || t.owners[fault.First] == none {
			return nil, fmt.Errorf("write table %s: %w", t.table.Name, faults)
		}
		bad[t.owners[fault.First]] = nftnl.Faults{fault}
		stale = stale || slices.Contains(others, fault.Errno)
	}
	var failed []sdk.Failure
	var suspects []sdk.Name
	var left changes[P]
	for i, c := range t.changes {
		if err, is := bad[i]; is {
			failed = append(failed, sdk.Failure{Name: c.Name, Err: err})
			suspects = append(suspects, c.Name)
		} else {
			left = append(left, c)
		}
	}
	if stale {
		return nil, &frame.Refused{Suspects: suspects, Err: fmt.Errorf("write table %s: %w", t.table.Name, faults)}
	}
	t.changes = left
	return failed, nil
}

// done notes what the kernel has now.
func (t *transaction[P]) done() {
	have := &t.table.Have
	if t.shape.afresh || !have.there || t.shape.take {
		have.flags = t.flags()
		have.taken = have.flags&nftnl.Owner != 0
	}
	have.there, have.Otherwise = true, false
	for _, s := range t.shape.Sets {
		have.Sets[s.Name] = true
	}
	for _, name := range t.shape.gone {
		delete(have.chains, name)
	}
	for _, some := range [][]Chain{t.shape.Made, t.shape.filled} {
		for _, c := range some {
			have.chains[c.Name] = seen{Chain: c}
		}
	}
	have.Stray, have.Missing = nil, nil
	have.fixed = slices.DeleteFunc(have.fixed, func(e Element) bool { return slices.Contains(t.fixed.Gone, e) })
	for _, e := range t.fixed.Come {
		if t.table.Layout.Use(e.Set) == OfNone {
			have.fixed = append(have.fixed, e)
		}
	}
	for set, n := range t.counts {
		have.counts[set] += n
		have.Elements += n
	}
	for at, s := range t.shared {
		if n := have.references[at] + s.more; n > 0 {
			have.references[at] = n
		} else {
			delete(have.references, at)
		}
	}
	for _, name := range t.shape.unused {
		delete(have.Sets, name)
		have.Elements -= have.counts[name]
		delete(have.counts, name)
	}
	for _, c := range t.changes {
		have.serves(c)
	}
}
