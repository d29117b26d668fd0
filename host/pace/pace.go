// SPDX-License-Identifier: Apache-2.0

/*
Package pace runs a function as often as necessary but not more often.

	request ──┐
	error   ──┼─▶ when? ──▶ wait ──▶ run ──┐
	time    ──┘     ▲                      │
	                └──────────────────────┘

Deployments change hundreds of endpoints per second, and each run costs CPU time. So
the first request after a quiet time runs at once, and after that there is a minimum
gap between the end of a run and the start of the next; all requests in between
become one run. A failed run is retried without a request. There are no bursts, and
never two runs at the same time.
*/
package pace

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrIdle is returned by the function if it had nothing to do. Such a run is not a failure, and
// the next run does not have to keep the minimum gap.
var ErrIdle = errors.New("nothing to do")

// Gaps are the times between the end of one run and the start of the next. Invariant: 0 <= Min,
// 0 <= Retry, and Min <= Max unless Max is zero.
type Gaps struct {
	Min   time.Duration // minimum gap, whatever the reason of the run
	Retry time.Duration // gap after a failed run; zero means Min
	Max   time.Duration // maximum gap, even without a request; zero means no maximum
}

// A Runner runs one function. SetGaps may be called from any goroutine at any time. Requests
// from before Run are not lost.
type Runner struct {
	clock    clock.Clock
	run      func(context.Context) error
	requests <-chan struct{} // holds a token if a run is requested
	wake     chan struct{}   // holds a token if the gaps changed

	mu   sync.Mutex // guards gaps
	gaps Gaps
}

// New returns a Runner of fn. A token in requests requests a run. A run serves a token that is
// there when it starts; a token that arrives during a run requests another run after it. The
// clock is clock.RealClock{} outside tests.
func New(c clock.Clock, gaps Gaps, requests <-chan struct{}, fn func(context.Context) error) *Runner {
	return &Runner{clock: c, run: fn, requests: requests, wake: make(chan struct{}, 1), gaps: gaps}
}

// SetGaps changes the gaps, including that of a wait in progress.
func (r *Runner) SetGaps(gaps Gaps) {
	r.mu.Lock()
	r.gaps = gaps
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run runs the function whenever it is due, until ctx ends. The function receives ctx.
func (r *Runner) Run(ctx context.Context) {
	s := state{end: r.clock.Now()}
	for ctx.Err() == nil {
		r.mu.Lock()
		gaps := r.gaps
		r.mu.Unlock()
		start, due := s.next(gaps)
		if due && !start.After(r.clock.Now()) {
			select {
			case <-r.requests: // this run serves all requests up to now
			default:
			}
			s = s.afterRun(r.run(ctx), r.clock.Now())
			continue
		}
		r.wait(ctx, &s, start, due)
	}
}

// wait returns at start if due, and earlier if something happens. After the first request
// further requests do not wake it, so hundreds of changes per second cost nothing.
func (r *Runner) wait(ctx context.Context, s *state, start time.Time, due bool) {
	var alarm <-chan time.Time
	if due {
		timer := r.clock.NewTimer(start.Sub(r.clock.Now()))
		defer timer.Stop()
		alarm = timer.C()
	}
	requests := r.requests
	if s.requested {
		requests = nil
	}
	select {
	case <-requests:
		s.requested = true
	case <-r.wake:
	case <-alarm:
	case <-ctx.Done():
	}
}

// A state is everything that decides when the next run starts.
type state struct {
	requested bool      // a run is requested
	failed    bool      // the last run failed
	end       time.Time // when the last run ended; before the first run, when Run was called
	worked    time.Time // when the last run that was not idle ended; zero if there was none
}

// afterRun returns the state after a run that ended now with err.
func (s state) afterRun(err error, now time.Time) state {
	if errors.Is(err, ErrIdle) {
		return state{end: now, worked: s.worked}
	}
	return state{failed: err != nil, end: now, worked: now}
}

// next returns when the next run starts. If due is false, nothing is scheduled until something
// happens.
func (s state) next(g Gaps) (start time.Time, due bool) {
	gap, due := s.gap(g)
	start = s.end.Add(gap)
	if soonest := s.worked.Add(g.Min); !s.worked.IsZero() && start.Before(soonest) {
		start = soonest
	}
	return start, due
}

// gap returns the shortest gap for which there is a reason to run.
func (s state) gap(g Gaps) (gap time.Duration, due bool) {
	switch {
	case s.requested:
		return 0, true
	case s.failed && (g.Max == 0 || g.Retry < g.Max):
		return g.Retry, true
	case g.Max > 0:
		return g.Max, true
	}
	return 0, false
}
