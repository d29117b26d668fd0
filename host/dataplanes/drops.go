// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// drops are the packets that dataplanes have dropped, by reason, added up over their processes and modes: the kernel's
// counters go on when a plugin is restarted, and begin anew with the rules of another mode. The zero value has none.
type drops struct {
	mu    sync.Mutex // guards what follows
	last  map[counter]uint64
	total map[string]uint64
}

// A counter is one that a mode has reported.
type counter struct {
	mode, reason string
	family       sdk.Family
}

// add adds what a mode has dropped since its last report.
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

// of returns the totals of the reasons that a report has.
func (d *drops) of(report []sdk.Drops) map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	totals := make(map[string]uint64)
	for _, now := range report {
		totals[now.Reason] = d.total[now.Reason]
	}
	return totals
}
