// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"time"
)

// parts are what of the layout is made only when a Service needs it. They grow with the first
// Service that does, and shrink when the table is read.
type parts struct {
	timeouts []time.Duration // of affinity, in order
}

// grow has the parts be enough for w, and reports whether they were not.
func (p *parts) grow(w wanted) bool {
	at, found := slices.BinarySearch(p.timeouts, w.affinity)
	if w.affinity <= 0 || found {
		return false
	}
	p.timeouts = slices.Insert(slices.Clone(p.timeouts), at, w.affinity)
	return true
}
