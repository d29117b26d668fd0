// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"errors"
	"time"
)

// A state is all that decides when the next run starts.
type state struct {
	kicked bool      // it was asked for
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
	case s.kicked:
		return 0, true
	case s.failed && (g.Max == 0 || g.Retry < g.Max):
		return g.Retry, true
	case g.Max > 0:
		return g.Max, true
	}
	return 0, false
}
