// SPDX-License-Identifier: Apache-2.0

package track

import (
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// Whole returns the Full that a dataplane with these features would be sent first if it began a
// session now. It creates no cursor and changes nothing. It returns false before Synced.
func (t *Tracker) Whole(features []sdk.Feature) (sdk.Update, bool) {
	t.mu.Lock()
	defer t.unlock()
	if !t.synced {
		return sdk.Update{}, false
	}
	u := sdk.Update{To: 1, Full: true, Node: t.node, Set: make([]sdk.Service, 0, len(t.values))}
	lacks := func(f sdk.Feature) bool { return !slices.Contains(features, f) }
	for _, value := range t.values {
		if value != nil && !slices.ContainsFunc(value.Needs(), lacks) {
			u.Set = append(u.Set, *value)
		}
	}
	slices.SortFunc(u.Set, func(a, b sdk.Service) int { return a.Name.Compare(b.Name) })
	return u, true
}
