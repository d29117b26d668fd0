// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pointsman/pointsman/host/pace"
	"github.com/pointsman/pointsman/sdk"
)

// step runs one iteration of the loop. The runner calls it.
func (f *Feed) step(ctx context.Context) error {
	if err := f.Hold(ctx); err != nil {
		return nil // the feed is ending
	}
	defer f.Release()

	if f.takeRetry() {
		f.cursor.Retry()
	}
	began := f.clock.Now()
	err := f.send(ctx)
	if ctx.Err() != nil {
		return nil
	}
	f.updateGaps(err, f.clock.Since(began))
	if err != nil && !errors.Is(err, pace.ErrIdle) && f.hooks.Failed != nil {
		f.hooks.Failed(err)
	}
	return err
}

// takeRetry reports whether it is time to retry failed Services, and resets that.
func (f *Feed) takeRetry() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	takeRetry := f.owed.services && f.clock.Since(f.owed.since) >= f.periods.period
	if takeRetry {
		f.owed.services = false
	}
	return takeRetry
}

// updateGaps computes the gaps until the next step from the result and the duration of the last
// one.
func (f *Feed) updateGaps(err error, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	busy, now := errors.As(err, new(*sdk.Busy)), f.clock.Now()
	f.owed.retryNow = false
	switch {
	case busy:
		f.owed.busy = max(took, 1)
		if f.owed.busySince.IsZero() {
			f.owed.busySince = now
		}
	case err == nil:
		f.owed.errors = 0
	case !errors.Is(err, pace.ErrIdle):
		f.owed.errors++
	}
	if !busy {
		f.owed.busy, f.owed.busySince = 0, time.Time{}
	}
	f.runner.SetGaps(f.periods.gaps(f.owed, now))
}

// noteFailures records that Services failed. It ignores refusals, because retrying them does
// not help.
func (f *Feed) noteFailures(failures []sdk.Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, failure := range failures {
		var refusal *sdk.Refusal
		if !f.owed.services && !errors.As(failure.Err, &refusal) {
			f.owed.services, f.owed.since = true, f.clock.Now()
		}
	}
}

// send sends the cursor's next update, if there is one. If the dataplane asks for a resync, it
// sends a Full at once.
func (f *Feed) send(ctx context.Context) error {
	u, ok := f.cursor.Next()
	if !ok {
		return pace.ErrIdle
	}
	err := f.sync(ctx, u)
	if !errors.Is(err, sdk.ErrResync) {
		return err
	}
	f.cursor.Resync()
	if u, ok = f.cursor.Next(); !ok {
		return err
	}
	return f.sync(ctx, u)
}

// sync sends one update and acknowledges it to the cursor.
func (f *Feed) sync(ctx context.Context, u sdk.Update) error {
	if f.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.deadline)
		defer cancel()
	}
	start := f.clock.Now()
	result, err := f.dataplane.Sync(ctx, u)
	if err != nil {
		return fmt.Errorf("sync revision %d (%d set, %d deleted): %w", u.To, len(u.Set), len(u.Delete), err)
	}
	took := f.clock.Since(start)
	triggers := f.cursor.Ack(u.To, result.Failed)
	f.noteFailures(result.Failed)
	if f.hooks.Acked != nil {
		f.hooks.Acked(Acked{Update: u, Result: result, Took: took, Triggers: triggers})
	}
	if u.Full && len(u.Set) >= large {
		debug.FreeOSMemory() // loading and sending the whole state leaves more garbage than a day of changes
	}
	return nil
}

// large is the number of Services from which a Full is followed by a garbage collection.
const large = 1000

// owed is what has failed so far and must be retried.
type owed struct {
	services bool      // some Services failed, and may succeed later
	since    time.Time // when the first of them failed
	errors   int       // number of consecutive failed Syncs

	busy      time.Duration // duration of the last Sync if it returned *sdk.Busy, else zero
	busySince time.Time     // time of the first of consecutive *sdk.Busy
	retryNow  bool          // retry at once: the dataplane holds the lock now
}

// Delays after *sdk.Busy. Usually another process holds the writer's lock only for a moment,
// because it is about to end. A Full is expensive, so with busyShare the retries use at most a
// tenth of a processor.
const (
	busyInterval     = 100 * time.Millisecond
	busyFor          = 3 * time.Second
	busyLongInterval = time.Second
	busyShare        = 10
)

// periods are the intervals of a feed.
type periods struct {
	min, retry, period time.Duration
}

// check returns an error if p is invalid. Without a wait after errors, the feed would call a
// failing dataplane in a busy loop.
func (p periods) check() error {
	if p.min < 0 || p.retry <= 0 || p.period <= 0 {
		return fmt.Errorf("feed: want a gap of 0s or more, and waits of more than 0s, not gap %s, retry %s, period %s", p.min, p.retry, p.period)
	}
	return nil
}

// gaps returns when the next step runs. While the dataplane fails, changes do not make it run
// earlier: they only add to what the dataplane cannot accept now.
func (p periods) gaps(o owed, now time.Time) pace.Gaps {
	g := pace.Gaps{Min: p.min}
	switch {
	case o.retryNow:
		g.Min = 0
	case o.busy > 0:
		g.Min = busyInterval
		if now.Sub(o.busySince) >= busyFor {
			g.Min = busyLongInterval
		}
		g.Min = max(g.Min, busyShare*o.busy)
		g.Retry = g.Min
	case o.errors > 0:
		backoff := p.retry
		for range o.errors - 1 {
			backoff = min(2*backoff, p.period)
		}
		g.Min = max(p.min, min(backoff, p.period))
		g.Retry = g.Min
	}
	if o.services {
		g.Max = max(p.period, g.Min)
	}
	return g
}
