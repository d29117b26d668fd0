// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/report"
)

// This file sees to it that what the next host must know is on the disk.

// stateGap is between two looks at it.
const stateGap = time.Second

// keepState writes down again what could not be written, or was lost, until ctx ends.
func (set *Set) keepState(ctx context.Context) {
	ticker := time.NewTicker(stateGap)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			set.notWritten(set.writeState())
		}
	}
}

// writeState writes what differs from what is on the disk, and returns what it could not
// write.
func (set *Set) writeState() (unwritten []string) {
	if err := set.intent.Repair(); err != nil {
		unwritten = append(unwritten, err.Error())
	}
	for _, p := range set.all() {
		if why := p.status().Unwritten; why != "" {
			unwritten = append(unwritten, fmt.Sprintf("dataplane %s: %s", p.name, why))
		}
	}
	return unwritten
}

// notWritten notes what could not be written, and tells of it when that changes.
func (set *Set) notWritten(unwritten []string) {
	set.mu.Lock()
	before := set.unwritten
	set.unwritten = unwritten
	set.mu.Unlock()
	for _, why := range unwritten {
		if !slices.Contains(before, why) {
			set.Reports.Report(report.Event{Warning: true, Reason: report.StateNotWritten, Message: why})
		}
	}
	if len(unwritten) == 0 && len(before) > 0 {
		set.Reports.Report(report.Event{Reason: report.StateWritten, Message: "all that the next host must know is written down"})
	}
}

// Unwritten is what the next host must know and could not be written down.
func (set *Set) Unwritten() []string {
	set.mu.Lock()
	defer set.mu.Unlock()
	return slices.Clone(set.unwritten)
}
