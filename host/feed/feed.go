// SPDX-License-Identifier: Apache-2.0

/*
Package feed sends one dataplane its updates, in a loop:

	cursor.Changed ─▶ wait ─▶ Next ─▶ Sync ─▶ Ack ─▶ (wait)
	                   ▲       ▲        │
	                   │       └────────┤ ErrResync: send a Full at once
	                   └────────────────┘ other errors: retry later, with everything
	                                      that is unconfirmed

Deployments change hundreds of endpoints per second, and each update costs CPU time.
So the first change after a quiet time is sent at once, and after that there is a
minimum gap between two updates; all changes in between become one update. There are
no bursts, and never two updates at the same time. File schedule.go decides when.

The cursor remembers what the dataplane has not confirmed; the loop has no state of
that kind. So an update whose answer was lost is not lost: the cursor returns it
again, with the current values.

A feed exists for one session with one plugin process. It ends with the process, and
the next process gets a new feed. Start reading at Run.
*/
package feed

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// ErrGone is returned by Run when the dataplane's process has ended.
var ErrGone = errors.New("the dataplane is gone")

// A Syncer is the part of a Dataplane that a Feed uses.
type Syncer interface {
	Sync(context.Context, sdk.Update) (sdk.Result, error)
}

// Settings are the intervals of a Feed and its hooks.
type Settings struct {
	MinGap   time.Duration   // between two updates; zero: none
	Retry    time.Duration   // wait after an error, more than zero; doubled with each consecutive error, up to Period
	Period   time.Duration   // how often Services that failed are sent again; more than zero
	Deadline time.Duration   // timeout of one Sync; zero means none
	Gone     <-chan struct{} // closed when the dataplane's process has ended; nil if it never ends

	// The loop calls these functions, and waits for them.
	Acked  func(Acked)
	Failed func(error) // a Sync failed, with *sdk.Busy or another error, and will be retried
}

// An Acked is one update that the dataplane confirmed, except for Result.Failed.
type Acked struct {
	Update sdk.Update
	Result sdk.Result
	Took   time.Duration

	// Triggers are the times at which the changes that are now served were made, as far as the
	// objects record them.
	Triggers []time.Time
}

// A Feed sends updates from one cursor to one dataplane.
type Feed struct {
	cursor    *track.Cursor
	dataplane Syncer
	settings  Settings      // without the intervals
	semaphore chan struct{} // full while an update is in progress or the feed is held
	wake      chan struct{} // holds a token if schedule changed

	mu       sync.Mutex // guards schedule
	schedule schedule
}

// New returns a feed; Run starts it.
func New(cursor *track.Cursor, dataplane Syncer, s Settings) *Feed {
	return &Feed{
		cursor: cursor, dataplane: dataplane, settings: s,
		semaphore: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		schedule: schedule{minGap: s.MinGap, retry: s.Retry, period: s.Period},
	}
}

// Run runs the feed for one session: it sends the whole state, and then changes. It returns
// when ctx ends, or with ErrGone.
func (f *Feed) Run(ctx context.Context) error {
	f.cursor.Resync() // before the first step; later it would send everything twice
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with Run
		select {
		case <-f.settings.Gone:
			cancel(ErrGone)
		case <-ctx.Done():
		}
	}()
	for ctx.Err() == nil {
		if f.wait(ctx) {
			f.step(ctx)
		}
	}
	return context.Cause(ctx)
}

// wait reports whether a step is due. Otherwise it returns when that may have changed. After the
// first change further changes do not wake it, so hundreds of changes per second cost nothing.
func (f *Feed) wait(ctx context.Context) bool {
	f.mu.Lock()
	start, due := f.schedule.next()
	changed := f.cursor.Changed()
	if f.schedule.requested {
		changed = nil
	}
	f.mu.Unlock()
	var alarm <-chan time.Time
	if due {
		if !start.After(time.Now()) {
			return true
		}
		timer := time.NewTimer(time.Until(start))
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case <-changed:
		f.mu.Lock()
		f.schedule.requested = true
		f.mu.Unlock()
	case <-f.wake:
	case <-alarm:
	case <-ctx.Done():
	}
	return false
}

// step sends the cursor's next update, if there is one.
func (f *Feed) step(ctx context.Context) {
	if err := f.Hold(ctx); err != nil {
		return // the feed is ending
	}
	defer f.Release()
	select {
	case <-f.cursor.Changed(): // this step serves all changes up to now
	default:
	}
	began := time.Now()
	f.mu.Lock()
	retry := f.schedule.takeRetry(began)
	f.mu.Unlock()
	if retry {
		f.cursor.Retry()
	}
	sent, err := f.send(ctx)
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	f.schedule.afterStep(sent, err, time.Since(began), time.Now())
	f.mu.Unlock()
	if err != nil {
		f.settings.Failed(err)
	}
}

// send sends the cursor's next update, and reports whether there was one. If the dataplane asks
// for a resync, it sends a Full at once.
func (f *Feed) send(ctx context.Context) (sent bool, err error) {
	u, ok := f.cursor.Next()
	if !ok {
		return false, nil
	}
	err = f.sync(ctx, u)
	if errors.Is(err, sdk.ErrResync) {
		f.cursor.Resync()
		if u, ok = f.cursor.Next(); ok {
			err = f.sync(ctx, u)
		}
	}
	return true, err
}

// gcThreshold is the number of Services from which a Full is followed by a garbage collection.
const gcThreshold = 1000

// sync sends one update and acknowledges it to the cursor.
func (f *Feed) sync(ctx context.Context, u sdk.Update) error {
	if f.settings.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.settings.Deadline)
		defer cancel()
	}
	start := time.Now()
	result, err := f.dataplane.Sync(ctx, u)
	if err != nil {
		return fmt.Errorf("sync revision %d (%d set, %d deleted): %w", u.To, len(u.Set), len(u.Delete), err)
	}
	took := time.Since(start)
	triggers := f.cursor.Ack(u.To, result.Failed)
	f.mu.Lock()
	f.schedule.addFailures(result.Failed, time.Now())
	f.mu.Unlock()
	f.settings.Acked(Acked{Update: u, Result: result, Took: took, Triggers: triggers})
	if u.Full && len(u.Set) >= gcThreshold {
		debug.FreeOSMemory() // the first Full leaves more garbage than a day of changes
	}
	return nil
}

// SetPeriods changes MinGap and Period. The change takes effect immediately.
func (f *Feed) SetPeriods(minGap, period time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.schedule.minGap, f.schedule.period = minGap, period
	f.reschedule()
}

// RetryBusy retries at once if the last answer was *sdk.Busy. The caller knows that the
// dataplane holds the writer's lock now.
func (f *Feed) RetryBusy() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.schedule.retryNow = f.schedule.busy > 0
	f.reschedule()
}

// reschedule makes wait return, so that it reads the schedule again.
func (f *Feed) reschedule() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Hold waits for the update in progress and prevents further updates until Release. The cursor
// knows which revision the dataplane has confirmed by then.
func (f *Feed) Hold(ctx context.Context) error {
	select {
	case f.semaphore <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hold the feed: %w", ctx.Err())
	}
}

// Release ends a Hold.
func (f *Feed) Release() { <-f.semaphore }
