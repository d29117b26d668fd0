// SPDX-License-Identifier: Apache-2.0

/*
Package pace runs a function as often as needed and no oftener.

	ask    ──┐
	error  ──┼─▶ when? ──▶ wait ──▶ run ──┐
	time   ──┘     ▲                      │
	               └──────────────────────┘

Deployments change hundreds of endpoints in a second, and each run costs. So what
asks after a quiet time is run for at once, and from then on a minimum gap lies between
the end of a run and the start of the next; however often it is asked for in between,
that is one run. A run that fails is tried again without being asked. There are no
bursts, and never two runs at a time.
*/
package pace

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrIdle is what the function returns when it turned out that there was nothing
// to do. Such a run is no failure, and what comes next need not keep its distance.
var ErrIdle = errors.New("there was nothing to do")

// Gaps are the times between the end of one run and the start of the next. None is negative,
// and Max, where it is set, is no less than Min.
type Gaps struct {
	Min   time.Duration // at least this, whatever asks for the run
	Retry time.Duration // after a failed run, this; zero: Min
	Max   time.Duration // at most this, also when nothing asks; zero: for ever
}

// A Runner runs one function. SetGaps may be called from anywhere, at any time; what was
// asked for before Run is not lost.
type Runner struct {
	clock clock.Clock
	run   func(context.Context) error
	asks  <-chan struct{} // holds a token: a run is asked for
	wake  chan struct{}   // holds one: the gaps changed

	mu   sync.Mutex // guards gaps
	gaps Gaps
}

// New returns a Runner of fn, which a token in asks asks for. One that is there when a run
// begins is answered by it; one that comes during a run asks for another after it. The clock
// is clock.RealClock{} outside tests.
func New(c clock.Clock, gaps Gaps, asks <-chan struct{}, fn func(context.Context) error) *Runner {
	return &Runner{clock: c, run: fn, asks: asks, wake: make(chan struct{}, 1), gaps: gaps}
}

// SetGaps changes the gaps, also of the wait that is going on.
func (r *Runner) SetGaps(gaps Gaps) {
	r.mu.Lock()
	r.gaps = gaps
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run runs the function whenever it is due, until ctx ends. The function's
// context is ctx.
func (r *Runner) Run(ctx context.Context) {
	s := state{end: r.clock.Now()}
	for ctx.Err() == nil {
		r.mu.Lock()
		gaps := r.gaps
		r.mu.Unlock()
		start, due := s.next(gaps)
		if due && !start.After(r.clock.Now()) {
			select {
			case <-r.asks: // what was asked up to here, this run answers
			default:
			}
			s = s.after(r.run(ctx), r.clock.Now())
			continue
		}
		r.wait(ctx, &s, start, due)
	}
}

// wait returns at start if there is one, and sooner when something happens. Once it is asked,
// to be asked again is nothing that happens: hundreds of changes in a second wake nothing.
func (r *Runner) wait(ctx context.Context, s *state, start time.Time, due bool) {
	var alarm <-chan time.Time
	if due {
		timer := r.clock.NewTimer(start.Sub(r.clock.Now()))
		defer timer.Stop()
		alarm = timer.C()
	}
	asks := r.asks
	if s.asked {
		asks = nil
	}
	select {
	case <-asks:
		s.asked = true
	case <-r.wake:
	case <-alarm:
	case <-ctx.Done():
	}
}

// A state is all that decides when the next run starts.
type state struct {
	asked  bool      // for it
	failed bool      // the last one did
	end    time.Time // when the last one ended; before the first, when Run began
	worked time.Time // when the last one that had something to do ended; zero: none did
}

// after returns the state after a run that ended now, in err.
func (s state) after(err error, now time.Time) state {
	if errors.Is(err, ErrIdle) {
		return state{end: now, worked: s.worked}
	}
	return state{failed: err != nil, end: now, worked: now}
}

// next says when the next run starts; not due means not until something happens.
func (s state) next(g Gaps) (start time.Time, due bool) {
	gap, due := s.gap(g)
	start = s.end.Add(gap)
	if soonest := s.worked.Add(g.Min); !s.worked.IsZero() && start.Before(soonest) {
		start = soonest
	}
	return start, due
}

// gap returns the shortest of the gaps after which there is a reason to run.
func (s state) gap(g Gaps) (gap time.Duration, due bool) {
	switch {
	case s.asked:
		return 0, true
	case s.failed && (g.Max == 0 || g.Retry < g.Max):
		return g.Retry, true
	case g.Max > 0:
		return g.Max, true
	}
	return 0, false
}
