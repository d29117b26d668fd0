// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"context"
	"maps"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// Sync has the kernel follow changes to what owners want. An owner whose rules the kernel
// does not take keeps its old ones, and is named with the reason; the others go in without
// it.
func (r *Rules[K]) Sync(ctx context.Context, changes map[K]Desired) (refused map[K]error, err error) {
	owners := slices.SortedFunc(maps.Keys(changes), r.config.Compare)
	refused, err = iptables.Sift(owners, func(owners []K) ([]K, error) {
		some := changes
		if len(owners) < len(changes) {
			some = make(map[K]Desired, len(owners))
			for _, owner := range owners {
				some[owner] = changes[owner]
			}
		}
		return r.try(ctx, some)
	})
	r.Planned = r.Planned && err != nil
	return refused, err
}

// try is Sync for all of changes or none. When a line is refused it names the owners to
// which that may belong.
func (r *Rules[K]) try(ctx context.Context, changes map[K]Desired) (suspects []K, err error) {
	before := make(map[K]Desired, len(changes))
	for owner := range changes {
		before[owner] = r.desired[owner]
	}
	_, refused, err := r.Attempt(ctx, changes)
	if refused == nil {
		return nil, err
	}
	// Another process may have removed what the line needs. The second try reads it afresh.
	if _, again, err := r.Attempt(ctx, nil); again == nil {
		return nil, err
	}
	suspects = r.Suspects(refused, changes)
	if err := r.Read(ctx); err != nil {
		return nil, err
	}
	r.PutAll(before)
	if r.Planned {
		if len(changes) == 1 {
			suspects = slices.Collect(maps.Keys(changes))
		}
		for _, owner := range suspects {
			r.Put(owner, r.Served(owner))
		}
	}
	return suspects, refused
}

// Suspects are those of the owners in changes to which a refused line may belong. None:
// that cannot be told.
func (r *Rules[K]) Suspects(refused *iptables.LineError, changes map[K]Desired) []K {
	if c, ok := r.chains[refused.Chain]; ok {
		if _, changing := changes[c.owner]; changing {
			return []K{c.owner}
		}
	}
	for owner := range changes {
		if r.Concerns(owner, refused) {
			return []K{owner}
		}
	}
	return nil
}
