// SPDX-License-Identifier: Apache-2.0

/*
Package feed sends one dataplane its updates, in a loop:

	cursor.Changed ─▶ pace ─▶ Next ─▶ Sync ─▶ Ack ─▶ (wait)
	                   ▲       ▲        │
	                   │       └────────┤ ErrResync: send a Full at once
	                   └────────────────┘ other errors: retry later, with everything
	                                      that is unconfirmed

The cursor remembers what the dataplane has not confirmed; the loop has no state of
that kind. So an update whose answer was lost is not lost: the cursor returns it
again, with the current values.

A feed exists for one session with one plugin process. It ends with the process, and
the next process gets a new feed. Start reading at step.
*/
package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/pointsman/pointsman/host/pace"
	"github.com/pointsman/pointsman/sdk"
)

// ErrGone is returned by Run when the dataplane's process has ended.
var ErrGone = errors.New("the dataplane is gone")

// A Cursor produces the updates for one dataplane. *track.Cursor implements it.
type Cursor interface {
	Next() (u sdk.Update, ok bool) // ok is false if there is nothing to send
	Ack(revision uint64, failed []sdk.Failure) (triggers []time.Time)
	Retry()  // send the Services that failed again
	Resync() // make the next update a Full, and put a token into Changed
	Changed() <-chan struct{}
}

// A Syncer is the part of a Dataplane that a Feed uses.
type Syncer interface {
	Sync(context.Context, sdk.Update) (sdk.Result, error)
}

// Settings are the intervals of a Feed and its hooks.
type Settings struct {
	MinGap   time.Duration   // between two updates
	Retry    time.Duration   // wait after an error; doubled with each consecutive error, up to Period
	Period   time.Duration   // how often Services that failed are sent again
	Deadline time.Duration   // timeout of one Sync; zero means none
	Gone     <-chan struct{} // closed when the dataplane's process has ended; nil if it never ends
	Hooks    Hooks
}

// Hooks are called synchronously from the loop. A nil hook is not called.
type Hooks struct {
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
	cursor    Cursor
	dataplane Syncer
	clock     clock.Clock
	gone      <-chan struct{}
	deadline  time.Duration
	hooks     Hooks
	runner    *pace.Runner

	semaphore chan struct{} // full while an update is in progress or the feed is held

	mu      sync.Mutex // guards the fields below
	owed    owed
	periods periods
}

// New returns a feed; Run starts it. The clock is clock.RealClock{} outside tests.
func New(c clock.Clock, cursor Cursor, dataplane Syncer, s Settings) (*Feed, error) {
	f := &Feed{
		cursor: cursor, dataplane: dataplane, clock: c,
		gone: s.Gone, deadline: s.Deadline, hooks: s.Hooks,
		semaphore: make(chan struct{}, 1),
		periods:   periods{min: s.MinGap, retry: s.Retry, period: s.Period},
	}
	if err := f.periods.check(); err != nil {
		return nil, err
	}
	f.runner = pace.New(c, f.periods.gaps(f.owed, c.Now()), cursor.Changed(), f.step)
	return f, nil
}

// Run runs the feed for one session: it sends the whole state, and then changes. It returns
// when ctx ends, or with ErrGone.
func (f *Feed) Run(ctx context.Context) error {
	f.cursor.Resync() // before the runner starts; later it would send everything twice
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // ends with ctx; Run waits for it
		defer close(ended)
		f.runner.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	select {
	case <-f.gone:
		return ErrGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetPeriods changes MinGap and Period. The change takes effect immediately.
func (f *Feed) SetPeriods(minGap, period time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.periods
	changed.min, changed.period = minGap, period
	if err := changed.check(); err != nil {
		return err
	}
	f.periods = changed
	f.runner.SetGaps(changed.gaps(f.owed, f.clock.Now()))
	return nil
}

// RetryBusy retries at once if the last answer was *sdk.Busy. The caller knows that the
// dataplane holds the writer's lock now.
func (f *Feed) RetryBusy() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owed.busy > 0 {
		f.owed.retryNow = true
		f.runner.SetGaps(f.periods.gaps(f.owed, f.clock.Now()))
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
