// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk"
)

const (
	recheckEach = time.Second     // whether quarantined Services have changed
	tryLimit    = time.Minute     // for one group of a bisection
	tryAgain    = 5 * time.Second // after an instance could not be tried
)

// Run bisects what is suspected, and releases what has changed, until ctx ends.
func (q *Quarantine) Run(ctx context.Context) {
	ticker := time.NewTicker(recheckEach)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case suspects := <-q.suspected:
			if culprits, ok := q.bisect(ctx, suspects); ok {
				q.settle(culprits)
			}
		case <-ticker.C:
			q.recheck()
		}
	}
}

// bisect finds out which of the suspects the plugin crashes on. It is false if ctx ended
// before.
func (q *Quarantine) bisect(ctx context.Context, suspects []sdk.Name) (culprits []sdk.Name, ok bool) {
	b := bisect(suspects)
	for group := b.next(); group != nil; group = b.next() {
		crashed, err := q.try(ctx, group)
		if err == nil {
			b = b.tried(crashed)
			continue
		}
		if ctx.Err() == nil {
			q.Report(report.Event{Warning: true, Reason: report.PluginNote, Object: q.Plugin, Message: "find out which Service it crashes on: " + err.Error()})
		}
		select {
		case <-ctx.Done():
			return nil, false
		case <-time.After(tryAgain):
		}
	}
	return b.culprits, true
}

// try waits until the plugin's own process is ready, and tries a group beside it.
func (q *Quarantine) try(ctx context.Context, group []sdk.Name) (crashed bool, err error) {
	if err := q.Ready(ctx); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	return q.Try(ctx, group)
}

// settle quarantines the culprits, and no others.
func (q *Quarantine) settle(culprits []sdk.Name) {
	q.hold(culprits)
	q.mu.Lock()
	q.bisecting, q.common, q.crashes = false, nil, 0
	q.mu.Unlock()
	q.Changed()
	if len(culprits) == 0 {
		q.Report(report.Event{Reason: report.PluginNote, Object: q.Plugin, Message: "no Service was found that it crashes on"})
	}
	for _, n := range culprits {
		q.Report(report.Event{Warning: true, Reason: report.ServicePoison, Object: n.String(),
			Message: fmt.Sprintf("the %s dataplane crashes on it; it is left as it was served, until it changes", q.Plugin)})
	}
}

// recheck releases what has changed.
func (q *Quarantine) recheck() {
	released := q.release()
	if len(released) == 0 {
		return
	}
	q.Changed()
	for _, n := range released {
		q.Report(report.Event{Reason: report.ServiceFreed, Object: n.String(), Message: "it changed, and is tried again"})
	}
}

func (q *Quarantine) reportSuspects(n int) {
	q.Report(report.Event{Warning: true, Reason: report.PluginPoisoned, Object: q.Plugin,
		Message: fmt.Sprintf("it crashed twice on the same update; %s quarantined while bisecting", phrase.Count(n, "Service"))})
}
