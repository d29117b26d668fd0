// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// Changed says how the table differs from what was written; empty: it does not, but for single
// elements (Audit). It compares the generation of the rule set with what this process has written:
// that costs two microseconds. Only if another program has written something, in whatever table, it
// looks further. unsure says that this is only suspected.
func (t *Table[P]) Changed(ctx context.Context) (why string, unsure bool) {
	why, unsure, err := t.changed(ctx)
	if err != nil && ctx.Err() == nil {
		return err.Error(), true
	}
	return why, unsure
}

func (t *Table[P]) changed(ctx context.Context) (why string, unsure bool, err error) {
	conn, done, err := t.Reader()
	if err != nil {
		return "", false, err
	}
	defer done()
	generation, err := conn.Generation(ctx)
	if err != nil {
		return "", false, err
	}
	written := t.Commits.Count()
	same := generation-t.Have.generation == written-t.Have.batches
	if !same {
		t.Foreign()
		t.suspect = !t.Have.taken // of a table that has an owner others change nothing
	}
	compares := t.suspect && time.Now().After(t.compareAt)
	if same && !t.Recount.due() && !compares {
		return "", false, nil
	}
	why, err = t.differs(ctx, t.List(conn))
	if err == nil && why == "" {
		t.Have.generation, t.Have.batches = generation, written
		if compares {
			return "another program has replaced elements", true, nil // as many as before: all are read, and nothing is written if it has not
		}
	}
	return why, false, err
}

// differs compares the table with what was written, but for single elements.
func (t *Table[P]) differs(ctx context.Context, list nftnl.Listing) (string, error) {
	table, err := list.Table(ctx)
	switch {
	case err != nil:
		return "", err
	case (table != nil) != t.Have.there:
		return "the table is gone", nil
	case table == nil:
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
	for name, was := range t.Have.chains {
		now := seen{Chain: Chain{Hook: chains[name].Hook}, read: rules[name], raw: true}
		if _, there := chains[name]; !there || was.raw || !now.at(was.Chain) || !now.is(was.Chain) {
			return fmt.Sprintf("chain %s is not as it was written", name), nil
		}
	}
	for name := range chains {
		if _, there := t.Have.chains[name]; !there {
			return fmt.Sprintf("chain %s is new", name), nil
		}
	}
	sets, err := list.Sets(ctx)
	if err != nil {
		return "", err
	}
	t.Recount.count(ctx, list, sets)
	for name := range sets {
		if !t.Have.Sets[name] {
			return fmt.Sprintf("set %s is new", name), nil
		}
	}
	for name := range t.Have.Sets {
		now, there := sets[name]
		switch {
		case !there:
			return fmt.Sprintf("set %s is gone", name), nil
		case now.Timeout == 0 && now.Count >= 0 && now.Count != t.Have.counts[name]:
			return fmt.Sprintf("set %s has %d elements, not %d", name, now.Count, t.Have.counts[name]), nil
		}
	}
	return "", nil
}

// A Recount is of the elements of sets, where the kernel does not tell how many there are:
// all are read, at most once each few seconds, and for a twentieth of the time at most.
type Recount struct {
	owed      bool // another program has written since the last one
	Next      time.Time
	Countless bool // a test's to set: the kernel tells nothing
}

// recountEvery is how often elements are counted at most, and recountFor how long it may take.
const recountEvery, recountFor = 5 * time.Second, 10 * time.Second

func (c *Recount) due() bool { return c.owed && time.Now().After(c.Next) }

// count says of sets how many elements they have. What cannot be counted now is owed.
func (c *Recount) count(ctx context.Context, list nftnl.Listing, sets map[string]nftnl.Observed) {
	began := time.Now()
	soon := began.Before(c.Next)
	c.owed = false
	ctx, cancel := context.WithTimeout(ctx, recountFor)
	defer cancel()
	for name, s := range sets {
		if c.Countless {
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
		c.Next = began.Add(max(recountEvery, 20*time.Since(began)))
	}
}

// audited is how many Services an audit looks at.
const audited = 10

// Audit looks for the Elements of some Services, others each time.
func (t *Table[P]) Audit(ctx context.Context) frame.Finding {
	conn, done, err := t.Reader()
	if err != nil {
		return frame.Finding{}
	}
	defer done()
	list, left := t.List(conn), audited
	for name, w := range t.Have.Services { // Go begins each time elsewhere
		if left--; left < 0 {
			break
		}
		for _, e := range w.Elements(name) {
			if has, err := list.Has(ctx, e.Set, e.Element); err == nil && !has {
				return frame.Finding{Lost: frame.All, Why: fmt.Sprintf("set %s lacks an element of %s", e.Set, name)}
			}
		}
	}
	return frame.Finding{}
}
