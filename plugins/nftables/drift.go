// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// Foreign returns how the table differs from what this process wrote, or "" if it finds no difference. Reading
// the rule set's generation takes two microseconds. Foreign lists the table only if another program has committed
// to any table. It does not compare single elements: if another program may have replaced some, it says so with
// unsure, and List compares them.
func (k *nfTable) Foreign(ctx context.Context) (why string, unsure bool) {
	why, unsure, err := k.compare(ctx)
	if err != nil && ctx.Err() == nil {
		return err.Error(), true
	}
	return why, unsure
}

func (k *nfTable) compare(ctx context.Context) (why string, unsure bool, err error) {
	conn, done, err := k.reader()
	if err != nil {
		return "", false, err
	}
	defer done()
	generation, err := conn.Generation(ctx)
	if err != nil {
		return "", false, err
	}
	written := k.commits.Load()
	same := generation-k.have.generation == written-k.batches
	if !same {
		k.foreign()
		k.suspect = !k.have.taken // other programs cannot change a table that this process owns
	}
	compares := k.suspect && time.Now().After(k.compareAt)
	if same && !k.recount.due() && !compares {
		return "", false, nil
	}
	why, err = k.differs(ctx, k.listing(conn))
	if err == nil && why == "" {
		k.have.generation, k.batches = generation, written
		if compares {
			return "another program has replaced elements", true, nil // the counts are the same, so only reading all elements tells
		}
	}
	return why, false, err
}

// differs lists sets, chains and element counts, and returns the first difference from what was written.
func (k *nfTable) differs(ctx context.Context, list nftnl.Listing) (string, error) {
	found, err := list.Table(ctx)
	switch {
	case err != nil:
		return "", err
	case (found != nil) != k.have.there:
		return "the table is gone", nil
	case found == nil:
		return "", nil
	}
	now := make(map[entryKey]entryValue)
	sets, err := readLayout(ctx, list, now)
	if err != nil {
		return "", err
	}
	for key, was := range k.fixed {
		v, there := now[key]
		switch {
		case !there:
			return fmt.Sprintf("%s is gone", k.Kind(key).Label), nil
		case v != was:
			return fmt.Sprintf("%s is not as it was written", k.Kind(key).Label), nil
		}
	}
	for key := range now {
		if _, known := k.fixed[key]; !known {
			return fmt.Sprintf("%s is new", k.Kind(key).Label), nil
		}
	}
	k.recount.count(ctx, list, sets)
	for name, s := range sets {
		if s.Timeout == 0 && s.Count >= 0 && s.Count != k.counts[name] {
			return fmt.Sprintf("set %s has %d elements, not %d", name, s.Count, k.counts[name]), nil
		}
	}
	return "", nil
}

// A recount counts the elements of sets, for kernels that do not report the number. It reads all elements, at
// most every few seconds, and uses at most a twentieth of the time.
type recount struct {
	owed      bool // another program has written since the last recount
	next      time.Time
	countless bool // set by tests: ignore the counts that the kernel reports
}

// recountEvery is the minimum interval between recounts, and recountFor the maximum duration of one.
const recountEvery, recountFor = 5 * time.Second, 10 * time.Second

func (c *recount) due() bool { return c.owed && time.Now().After(c.next) }

// count fills in the element counts of sets. Sets that it cannot count now are counted next time (owed).
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
