// SPDX-License-Identifier: Apache-2.0

package pace

import "time"

// A state is all that decides when the next run starts.
type state struct {
	kicked bool      // someone asked for it
	ran    bool      // there was a run before
	failed bool      // and it failed
	end    time.Time // when it ended; before the first run, when Run began
}

// next says when the next run starts; not due means not until something happens.
func (s state) next(g Gaps) (start time.Time, due bool) {
	gap, due := s.gap(g)
	if s.ran {
		gap = max(gap, g.Min)
	}
	return s.end.Add(gap), due
}

// gap is the shortest of the gaps after which there is a reason to run.
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
