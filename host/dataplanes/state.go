// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/report"
)

// A record is what the next host must know. It sees to it that this is on the disk.
type record struct {
	group   *group
	reports *report.Reporter
	intent  *intent.Store

	mu        sync.Mutex // guards what follows
	unwritten []string   // what could not be written down
}

// stateGap is between two looks at it.
const stateGap = time.Second

// keep writes down again what could not be written, or was lost, until ctx ends.
func (r *record) keep(ctx context.Context) {
	every(ctx, stateGap, func(time.Time) { r.notWritten(r.writeState()) })
}

// every calls f again and again until ctx ends.
func every(ctx context.Context, gap time.Duration, f func(now time.Time)) {
	ticker := time.NewTicker(gap)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			f(now)
		}
	}
}

// change changes the intent. What cannot be written down keep tries again.
func (r *record) change(change func(intent.Intent) intent.Intent) {
	if err := r.intent.Change(change); err != nil {
		r.notWritten([]string{err.Error()})
	}
}

// writeState writes what differs from what is on the disk, and returns what it could not
// write.
func (r *record) writeState() (unwritten []string) {
	if err := r.intent.Repair(); err != nil {
		unwritten = append(unwritten, err.Error())
	}
	for _, p := range r.group.all() {
		if why := p.status().Unwritten; why != "" {
			unwritten = append(unwritten, fmt.Sprintf("dataplane %s: %s", p.name, why))
		}
	}
	return unwritten
}

// notWritten notes what could not be written, and reports it when that changes.
func (r *record) notWritten(unwritten []string) {
	r.mu.Lock()
	before := r.unwritten
	r.unwritten = unwritten
	r.mu.Unlock()
	for _, why := range unwritten {
		if !slices.Contains(before, why) {
			r.reports.Report(report.Event{Warning: true, Reason: report.StateNotWritten, Message: why})
		}
	}
	if len(unwritten) == 0 && len(before) > 0 {
		r.reports.Report(report.Event{Reason: report.StateWritten, Message: "all that the next host must know is written down"})
	}
}

// Unwritten returns what the next host must know and could not be written down.
func (r *record) Unwritten() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.unwritten)
}
