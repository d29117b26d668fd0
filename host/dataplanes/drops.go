// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// drops adds up the packets that dataplanes dropped, by reason, across processes and modes: the
// kernel's counters continue when a plugin restarts, and start at zero with the rules of
// another mode. The zero value is ready to use.
type drops struct {
	mu    sync.Mutex // guards the fields below
	last  map[counter]uint64
	total map[string]uint64
}

// A counter identifies a counter that a mode reports.
type counter struct {
	mode, reason string
	family       sdk.Family
}

// add adds the packets that a mode has dropped since its last report.
func (d *drops) add(mode string, report []sdk.Drops) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.total == nil {
		d.last, d.total = make(map[counter]uint64), make(map[string]uint64)
	}
	for _, now := range report {
		c := counter{mode, now.Reason, now.Family}
		grown := now.Packets
		if before := d.last[c]; before <= grown {
			grown -= before
		}
		d.last[c] = now.Packets
		d.total[now.Reason] += grown
	}
}

// of returns the totals for the reasons in a report.
func (d *drops) of(report []sdk.Drops) map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	totals := make(map[string]uint64)
	for _, now := range report {
		totals[now.Reason] = d.total[now.Reason]
	}
	return totals
}
