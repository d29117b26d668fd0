// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// parts are what of the layout is made only when a Service needs it. They grow with the first
// Service that does, and shrink when the table is read.
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

// grow has the parts be enough for w, and reports whether they were not.
func (h *parts) grow(of sdk.Family, w wanted) (grown bool) {
	for _, f := range w.frontends {
		p := at(of, f)
		grown = h.lengthen(p, len(w.lists[f.policy])) || grown
		if f.external() && f.policy == sdk.Local {
			grown = h.lengthen(near(p), len(w.lists[sdk.Cluster])) || grown
		}
	}
	if i, found := slices.BinarySearch(h.timeouts, w.affinity); w.affinity > 0 && !found {
		h.timeouts, grown = slices.Insert(slices.Clone(h.timeouts), i, w.affinity), true
	}
	return grown
}

// lengthen has an index be enough for a list of so many endpoints.
func (h *parts) lengthen(p index, endpoints int) bool {
	largest := max(least, class(endpoints))
	if h.classes[p] >= largest {
		return false
	}
	if h.classes == nil {
		h.classes = make(map[index]uint32)
	}
	h.classes[p] = largest
	return true
}
