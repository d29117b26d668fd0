// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"time"
)

// parts are what of the layout is made only when a Service needs it (partsOf).
type parts struct {
	classes  map[index]uint32 // the largest of an index
	timeouts []time.Duration  // of affinity, in order
}

// least is the largest class of an index in which no list is longer: few lists are, and to
// add a class is to write the index's chain anew.
const least = 4

// whole are all parts there may be, with some timeouts.
func whole(f ip, timeouts ...time.Duration) parts {
	all := parts{classes: make(map[index]uint32), timeouts: slices.Compact(slices.Sorted(slices.Values(timeouts)))}
	for _, p := range indexes(f) {
		all.classes[p] = Ceiling
	}
	return all
}

// indexes are those that there are: the first one always.
func (h parts) indexes(f ip) []index {
	return slices.DeleteFunc(indexes(f), func(p index) bool { return !h.has(p) })
}

func (h parts) has(p index) bool { return h.classes[p] > 0 || !p.ports && !p.near }

// upTo are the classes of an index.
func (h parts) upTo(p index) []uint32 { return classes(max(least, h.classes[p])) }
