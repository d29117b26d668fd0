// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"time"
)

// parts are the parts of the layout that exist only if a Service needs them (see partsOf).
type parts struct {
	classes  map[index]uint32 // the largest class of each index
	timeouts []time.Duration  // affinity timeouts, sorted
}

// minClass is the smallest value of parts.classes. Few lists are longer, and adding a class rewrites the
// index's chain.
const minClass = 4

// allParts returns all parts, with the given timeouts.
func allParts(f ip, timeouts ...time.Duration) parts {
	all := parts{classes: make(map[index]uint32), timeouts: slices.Compact(slices.Sorted(slices.Values(timeouts)))}
	for _, p := range indexes(f) {
		all.classes[p] = Ceiling
	}
	return all
}

// indexes returns the indexes that exist. The first one always does.
func (h parts) indexes(f ip) []index {
	return slices.DeleteFunc(indexes(f), func(p index) bool { return !h.has(p) })
}

func (h parts) has(p index) bool { return h.classes[p] > 0 || !p.ports && !p.near }

// classesOf returns the classes of an index.
func (h parts) classesOf(p index) []uint32 { return classes(max(minClass, h.classes[p])) }
