// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// Probe compares the generation of the rule set with what this process has written: that costs
// two microseconds. If another program has written something, in whatever table, it looks
// whether that was ours. Now and then it looks at the node's addresses.
func (f *family) Probe(ctx context.Context) frame.Finding {
	why, err := f.changed(ctx)
	if err != nil && ctx.Err() == nil {
		why = err.Error()
	}
	f.lookAround(ctx)
	found := frame.Finding{Due: f.moved()}
	if f.cleaned.Left() { // it cannot take away what this process owns
		why = "another process cleaned up"
	}
	if why != "" {
		found.Lost, found.Why = frame.All, why
	}
	return found
}

// moved reports whether other addresses take node ports than was known.
func (f *family) moved() bool {
	if time.Since(f.addressed) < addressesEvery {
		return false
	}
	f.addressed = time.Now()
	now, self, err := f.node.addresses()
	if err != nil {
		f.log.Warn("cannot see which addresses take node ports", "err", err)
		return false
	}
	if slices.Equal(now, f.own) && self == f.node.self {
		return false
	}
	f.log.Info("other addresses take node ports", "family", f.node.Family, "addresses", len(now))
	f.own, f.node.self, f.shaped = now, self, true
	return true
}

// changed says how the table differs from what was written, if another program may have
// written it.
func (f *family) changed(ctx context.Context) (string, error) {
	conn, done, err := f.reader()
	if err != nil {
		return "", err
	}
	defer done()
	generation, err := conn.Generation(ctx)
	if err != nil {
		return "", err
	}
	written := f.commits.count()
	same := generation-f.have.generation == written-f.have.batches
	if same && !f.recount.due() {
		return "", nil
	}
	if !same {
		f.foreign = true
		f.marks.doubted.Store(true)
	}
	why, err := f.differs(ctx, conn.List(f.nft(), table))
	if err == nil && why == "" {
		f.have.generation, f.have.batches = generation, written
	}
	return why, err
}

// differs compares the table with what was written, but for single elements.
func (f *family) differs(ctx context.Context, list nftnl.Listing) (string, error) {
	t, err := list.Table(ctx)
	switch {
	case err != nil:
		return "", err
	case (t != nil) != f.have.there:
		return "the table is gone", nil
	case t == nil:
		return "", nil
	}
	rules, err := list.Rules(ctx, "")
	if err != nil {
		return "", err
	}
	chains, err := list.Chains(ctx)
	if err != nil {
		return "", err
	}
	for name, was := range f.have.chains {
		now := seen{chain: chain{hook: chains[name].Hook}, read: rules[name], raw: true}
		if _, there := chains[name]; !there || was.raw || !now.at(was.chain) || !now.is(was.chain) {
			return fmt.Sprintf("chain %s is not as it was written", name), nil
		}
	}
	for name := range chains {
		if _, there := f.have.chains[name]; !there {
			return fmt.Sprintf("chain %s is new", name), nil
		}
	}
	sets, err := list.Sets(ctx)
	if err != nil {
		return "", err
	}
	f.recount.count(ctx, list, sets)
	for name := range sets {
		if !f.have.sets[name] {
			return fmt.Sprintf("set %s is new", name), nil
		}
	}
	for name := range f.have.sets {
		now, there := sets[name]
		switch {
		case !there:
			return fmt.Sprintf("set %s is gone", name), nil
		case now.Timeout == 0 && now.Count >= 0 && now.Count != f.have.counts[name]:
			return fmt.Sprintf("set %s has %d elements, not %d", name, now.Count, f.have.counts[name]), nil
		}
	}
	return "", nil
}

// A recount is of the elements of sets, where the kernel does not tell how many there are:
// all are read, at most once each few seconds, and for a twentieth of the time at most.
type recount struct {
	owed      bool // another program has written since the last one
	next      time.Time
	countless bool // a test's to set: the kernel tells nothing
}

// recountEvery is how often elements are counted at most, and recountFor how long it may take.
const recountEvery, recountFor = 5 * time.Second, 10 * time.Second

func (c *recount) due() bool { return c.owed && time.Now().After(c.next) }

// count says of sets how many elements they have. What cannot be counted now is owed.
func (c *recount) count(ctx context.Context, list nftnl.Listing, sets map[string]nftnl.Observed) {
	began := time.Now()
	soon := began.Before(c.next)
	c.owed = false
	ctx, cancel := context.WithTimeout(ctx, recountFor)
	defer cancel()
	for name, s := range sets {
		if c.countless {
			s.Count = -1
		}
		if s.Count >= 0 || s.Timeout > 0 {
			continue
		}
		if soon || c.owed {
			c.owed = true
		} else if n, err := list.Len(ctx, name); err != nil {
			c.owed = true
		} else {
			s.Count = n
		}
		sets[name] = s
	}
	if !soon {
		c.next = began.Add(max(recountEvery, 20*time.Since(began)))
	}
}

// audited is how many Services an audit looks at.
const audited = 10

// Audit looks for the elements of some Services, others each time.
func (f *family) Audit(ctx context.Context) frame.Finding {
	conn, done, err := f.reader()
	if err != nil {
		return frame.Finding{}
	}
	defer done()
	list, left := conn.List(f.nft(), table), audited
	for name, w := range f.have.services { // Go begins each time elsewhere
		if left--; left < 0 {
			break
		}
		for _, e := range w.elements(name) {
			if has, err := list.Has(ctx, e.set, e.Element); err == nil && !has {
				return frame.Finding{Lost: frame.All, Why: fmt.Sprintf("set %s lacks an element of %s", e.set, name)}
			}
		}
	}
	return frame.Finding{}
}
