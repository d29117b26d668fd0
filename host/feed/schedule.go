// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A schedule is everything that decides when the next step starts.
type schedule struct {
	minGap    time.Duration // between two updates
	retry     time.Duration // wait after an error, doubled with each consecutive one, up to period
	period    time.Duration // how often Services that failed are sent again
	requested bool          // the cursor may have an update, or the last step failed
	worked    time.Time     // when the last step ended that sent something; zero if none did

	failed time.Time // when the first of the Services failed that may succeed later; zero if none has
	errors int       // number of consecutive failed Syncs

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

// next returns when the next step starts. If due is false, nothing is scheduled until something
// happens.
func (s schedule) next() (start time.Time, due bool) {
	if !s.requested {
		if s.failed.IsZero() {
			return start, false
		}
		start = s.failed.Add(s.period)
	}
	if soonest := s.worked.Add(s.gap()); !s.worked.IsZero() && start.Before(soonest) {
		start = soonest
	}
	return start, true
}

// gap returns the minimum time between the last step and the next one. While the dataplane
// fails, changes do not make a step start earlier: they only add to what the dataplane cannot
// accept now.
func (s schedule) gap() time.Duration {
	switch {
	case s.retryNow:
		return 0
	case s.busy > 0:
		interval := busyInterval
		if s.worked.Sub(s.busySince) >= busyFor {
			interval = busyLongInterval
		}
		return max(interval, busyShare*s.busy)
	case s.errors > 0:
		backoff := s.retry
		for range s.errors - 1 {
			backoff = min(2*backoff, s.period)
		}
		return max(s.minGap, min(backoff, s.period))
	}
	return s.minGap
}

// afterStep records that a step ended now with err, after it took so long. sent is false if there
// was nothing to send. Such a step is not a failure, and the next one does not have to keep the
// minimum gap.
func (s *schedule) afterStep(sent bool, err error, took time.Duration, now time.Time) {
	busy := errors.As(err, new(*sdk.Busy))
	s.requested, s.retryNow = err != nil, false
	if sent {
		s.worked = now
	}
	switch {
	case busy:
		s.busy = max(took, 1)
		if s.busySince.IsZero() {
			s.busySince = now
		}
		return
	case err != nil:
		s.errors++
	case sent:
		s.errors = 0
	}
	s.busy, s.busySince = 0, time.Time{}
}

// addFailures records that Services failed. It ignores refusals, because retrying them does not
// help.
func (s *schedule) addFailures(failures []sdk.Failure, now time.Time) {
	for _, failure := range failures {
		if s.failed.IsZero() && !errors.As(failure.Err, new(*sdk.Refusal)) {
			s.failed = now
		}
	}
}

// takeRetry reports whether it is time to retry failed Services. If so, it resets that time.
func (s *schedule) takeRetry(now time.Time) bool {
	retry := !s.failed.IsZero() && now.Sub(s.failed) >= s.period
	if retry {
		s.failed = time.Time{}
	}
	return retry
}
