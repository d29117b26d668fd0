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

// step returns one turn of the loop.
func (f *Feed) step(ctx context.Context) error {
	if err := f.Hold(ctx); err != nil {
		return nil // the feed is ending
	}
	defer f.Release()

	if f.due() {
		f.cursor.Retry()
	}
	began := f.clock.Now()
	err := f.send(ctx)
	if ctx.Err() != nil {
		return nil
	}
	f.keepPace(err, f.clock.Since(began))
	if err != nil && !errors.Is(err, pace.ErrIdle) && f.hooks.Failed != nil {
		f.hooks.Failed(err)
	}
	return err
}

// due reports whether failed Services are to be offered again; then they are owed
// no more.
func (f *Feed) due() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	due := f.owed.services && f.clock.Since(f.owed.since) >= f.periods.period
	if due {
		f.owed.services = false
	}
	return due
}

// keepPace sets when the next step is, after one that took so long and ended with err.
func (f *Feed) keepPace(err error, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	busy, now := errors.As(err, new(*sdk.Busy)), f.clock.Now()
	f.owed.hurried = false
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

// owe notes the failures of one update. A refusal is not owed: trying again will not help.
func (f *Feed) owe(failures []sdk.Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, failure := range failures {
		var refusal *sdk.Refusal
		if !f.owed.services && !errors.As(failure.Err, &refusal) {
			f.owed.services, f.owed.since = true, f.clock.Now()
		}
	}
}

// send sends what the cursor has, if anything. A dataplane that asks for a resync
// gets everything at once.
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

// sync sends one update, and passes the answer to the cursor.
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
	f.owe(result.Failed)
	if f.hooks.Acked != nil {
		f.hooks.Acked(Acked{Update: u, Result: result, Took: took, Triggers: triggers})
	}
	if u.Full && len(u.Set) >= large {
		debug.FreeOSMemory() // reading and sending all that left more garbage than a day of changes does
	}
	return nil
}

// large is how many Services make a Full that is worth a collection of its own.
const large = 1000

// owed is what the dataplane has failed so far.
type owed struct {
	services bool      // some failed that may go in later
	since    time.Time // when the first of them did
	errors   int       // Syncs that failed in a row

	busy      time.Duration // how long the last one took that was answered with a *sdk.Busy; zero: none since one that was not
	busySince time.Time     // when the first of these in a row was
	hurried   bool          // it holds the lock by now
}

// Another process mostly holds the writer's lock for a moment: it is about to end. An update of everything costs
// a tenth of a processor at most, however often it is tried.
const (
	busyOften  = 100 * time.Millisecond
	busyFor    = 3 * time.Second
	busySeldom = time.Second
	busyShare  = 10
)

// periods are the times a feed keeps.
type periods struct {
	min, retry, period time.Duration
}

// check says what is wrong with p, if anything. Without a wait after an error, a
// dataplane that fails would be called without end.
func (p periods) check() error {
	if p.min < 0 || p.retry <= 0 || p.period <= 0 {
		return fmt.Errorf("feed: want a gap of 0s or more, and waits of more than 0s, not gap %s, retry %s, period %s", p.min, p.retry, p.period)
	}
	return nil
}

// gaps say when the next step is. While the dataplane fails, changes do not
// hasten it: they would only be more of what it cannot take now.
func (p periods) gaps(o owed, now time.Time) pace.Gaps {
	g := pace.Gaps{Min: p.min}
	switch {
	case o.hurried:
		g.Min = 0
	case o.busy > 0:
		g.Min = busyOften
		if now.Sub(o.busySince) >= busyFor {
			g.Min = busySeldom
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
