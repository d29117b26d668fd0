// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
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
		t := transaction{family: f, table: table, context: ctx, shape: shape{take: true}}
		if _, err := t.write(); err != nil {
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
		if members := t.changes.forgetful(); len(members) > 0 {
			first := transaction{family: f, table: table, context: ctx, fixed: difference{gone: members}}
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
	f.touched = make(map[sdk.Name]bool) // small again: to walk a map costs its largest size
	f.all, f.shaped = false, false
	f.marks.begin(f.node.node.MasqueradeBit)
	return failed, nil
}

// elements is how many go and come in all.
func (all changes) elements() (n int) {
	for _, c := range all {
		n += len(c.gone) + len(c.come)
	}
	return n
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

	batch  *nftnl.Batch
	owners []int // of each operation: the change that it is of, or none
	counts map[string]int
	shared map[place]sharing
}

// A sharing is what the changes do to an element that Services share: how many more have it, and
// the last of the changes.
type sharing struct{ more, change int }

const none = -1

// write writes the transaction. Changes of which the kernel takes an element for a mistake are
// left out, and their Services failed.
func (t *transaction) write() (failed []sdk.Failure, err error) {
	for {
		if err := t.build(); err != nil {
			return nil, err
		}
		if t.batch.Len() == 0 { // a shared element is of fewer Services, or of more
			t.done()
			return failed, nil
		}
		err := t.family.conn.Send(t.context, t.batch)
		var faults nftnl.Faults
		switch {
		case err == nil:
			t.family.commits.n.Add(1)
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
			f := t.family
			return nil, fmt.Errorf("table %s %s is %w", f.word(), table, owned(t.context, f.conn.List(f.nft(), table), err))
		}
		bad, err := t.blame(faults)
		if err != nil {
			return nil, err
		}
		failed = append(failed, bad...)
	}
}

// refused counts a transaction that did not go in.
func (t *transaction) refused() {
	t.family.refused++
	come := len(t.fixed.come)
	for _, c := range t.changes {
		come += len(c.come)
	}
	if come == 0 {
		t.family.removals++
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
func (t *transaction) unprotected(faults nftnl.Faults) bool {
	f := t.family
	refused := errors.Is(faults, syscall.EOPNOTSUPP) || errors.Is(faults, syscall.EINVAL)
	if f.have.there || f.options.Protect == "never" || !refused || faults[0].First != 0 {
		return false
	}
	f.log.Info("the kernel cannot protect the table from other programs", "family", f.node.Family)
	f.options.Protect = "never"
	return true
}

// blame leaves out the changes whose elements are bad. Where something else is there than was
// known, or nothing, all is to be read again first.
func (t *transaction) blame(faults nftnl.Faults) ([]sdk.Failure, error) {
	others := []syscall.Errno{syscall.EEXIST, syscall.ENOENT, syscall.EBUSY}
	bad, stale := make(map[int]error), false
	for _, fault := range faults {
		if fault.First != fault.Last || t.owners[fault.First] == none {
			return nil, fmt.Errorf("write table %s: %w", table, faults)
		}
		bad[t.owners[fault.First]] = nftnl.Faults{fault}
		stale = stale || slices.Contains(others, fault.Errno)
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

// done notes what the kernel has now.
func (t *transaction) done() {
	f := t.family
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
	f.have.stray, f.have.missing = nil, nil
	f.have.own = slices.DeleteFunc(f.have.own, func(e element) bool { return slices.Contains(t.fixed.gone, e) })
	for _, e := range t.fixed.come {
		if e.set == "own" {
			f.have.own = append(f.have.own, e)
		}
	}
	for set, n := range t.counts {
		f.have.counts[set] += n
		f.have.total += n
	}
	for at, s := range t.shared {
		if n := f.have.references[at] + s.more; n > 0 {
			f.have.references[at] = n
		} else {
			delete(f.have.references, at)
		}
	}
	for _, name := range t.shape.unused {
		delete(f.have.sets, name)
		f.have.total -= f.have.counts[name]
		delete(f.have.counts, name)
	}
	for _, c := range t.changes {
		f.have.serves(c)
	}
}
