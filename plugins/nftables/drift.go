// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// Foreign returns how the table differs from what this process wrote, or "" if it finds no difference. Reading
// the rule set's generation takes two microseconds. Foreign lists the sets and chains of the table only if another
// program has committed to any table. It does not compare elements: if another program may have changed some, it says
// so with unsure, and List compares them.
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
	if same && !compares {
		return "", false, nil
	}
	why, err = k.differs(ctx, k.listing(conn))
	if err == nil && why == "" {
		k.have.generation, k.batches = generation, written
		if compares {
			return "another program has changed elements", true, nil // only reading all elements tells
		}
	}
	return why, false, err
}

// differs lists sets and chains, and returns the first difference from what was written.
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
	if _, err := readLayout(ctx, list, now); err != nil {
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
	return "", nil
}
