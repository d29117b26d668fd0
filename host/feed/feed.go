// SPDX-License-Identifier: Apache-2.0

/*
Package feed is the loop that sends one dataplane its updates:

	cursor.Changed ─▶ pace ─▶ Next ─▶ Sync ─▶ Ack ─▶ (wait)
	                   ▲       ▲        │
	                   │       └────────┤ ErrResync: from nothing, at once
	                   └────────────────┘ another error: later, and everything
	                                      unconfirmed again

The cursor keeps what the dataplane has not confirmed; the loop keeps nothing. So
it forgets nothing: an update whose answer never came is handed out again by the
cursor, as things stand then.

A feed lasts as long as one session with one plugin process. When the process is
gone so is the feed, and the next process gets a new one.
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

// ErrGone is what Run returns when the dataplane's process is gone.
var ErrGone = errors.New("the dataplane is gone")

// A Cursor hands out what one dataplane has not confirmed. *track.Cursor is one.
type Cursor interface {
	Next() (u sdk.Update, ok bool) // not ok: nothing to send
	Ack(revision uint64, failed []sdk.Failure) (triggers []time.Time)
	Retry()  // offer what failed again
	Resync() // the next update is a Full, and Changed has a token
	Changed() <-chan struct{}
}

// A Syncer is the part of a Dataplane that a feed needs.
type Syncer interface {
	Sync(context.Context, sdk.Update) (sdk.Result, error)
}

// Settings are the times a feed keeps, and what it calls.
type Settings struct {
	MinGap   time.Duration   // between two updates
	Retry    time.Duration   // how soon after an error; doubled with each in a row, up to Period
	Period   time.Duration   // how often Services that failed are offered again
	Deadline time.Duration   // of one Sync; zero: none
	Gone     <-chan struct{} // closed when the dataplane's process is gone; nil: it never is
	Hooks    Hooks
}

// Hooks are called from the loop, which waits for them. A nil one is not called.
type Hooks struct {
	Acked  func(Acked)
	Failed func(error) // a Sync failed, with a *sdk.Busy or otherwise, and is tried again
}

// An Acked is one update that the dataplane confirmed, all but Result.Failed.
type Acked struct {
	Update sdk.Update
	Result sdk.Result
	Took   time.Duration

	// Triggers are when the changes that are now served were made, as far as
	// their makers said.
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

	semaphore chan struct{} // holds one while an update is under way, or the feed is held

	mu      sync.Mutex // guards what follows
	owed    owed
	periods periods
}

// New returns a feed that begins with Run. The clock is clock.RealClock{}
// outside tests.
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

// Run begins a session: it sends the dataplane everything, and from then on what
// changes. It ends with ctx, or with ErrGone.
func (f *Feed) Run(ctx context.Context) error {
	f.cursor.Resync() // before anything is sent, or everything is sent twice
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

// SetPeriods changes MinGap and Period, at once.
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

// Hurry has a dataplane that answered *sdk.Busy be tried again at once: it holds the writer's lock by now.
func (f *Feed) Hurry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owed.busy > 0 {
		f.owed.hurried = true
		f.runner.SetGaps(f.periods.gaps(f.owed, f.clock.Now()))
	}
}

// Hold waits for the update under way and lets no other begin until Release. Which revision
// the dataplane has confirmed then, its cursor knows.
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
