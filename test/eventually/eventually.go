// SPDX-License-Identifier: Apache-2.0

// Package eventually waits, in tests, for what another goroutine, another process or the
// kernel does in its own time. A test that sleeps instead is too short on a busy machine and
// too long on an idle one. Where code has a clock of its own, its test runs in a bubble of
// testing/synctest, where Pass advances the fake clock.
//
//	eventually.True(t, "the plugin exits", func() bool { return p.exited() })
//	eventually.Succeeds(t, "the Service is served", func() error { return n.serves("web") })
package eventually

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Timeout is how long True and Succeeds wait. It is many times what anything should take,
// as a busy machine is no failure.
const Timeout = 2 * time.Minute

// The pause between two checks grows: what takes a moment is seen at once, and what takes
// seconds is not kept from its processor by those who wait for it.
const (
	firstPause   = time.Millisecond
	longestPause = 50 * time.Millisecond
)

// True waits until check reports true, and ends the test if that takes too long. What is
// waited for is said as a sentence that should be true: "the plugin exits".
func True(t testing.TB, what string, check func() bool) {
	t.Helper()
	TrueWithin(t, Timeout, what, check)
}

// TrueWithin is True, for as long as limit.
func TrueWithin(t testing.TB, limit time.Duration, what string, check func() bool) {
	t.Helper()
	SucceedsWithin(t, limit, what, func() error { return holds(check()) })
}

// Succeeds waits until check returns no error, and ends the test with the last one if that
// takes too long.
func Succeeds(t testing.TB, what string, check func() error) {
	t.Helper()
	SucceedsWithin(t, Timeout, what, check)
}

// SucceedsWithin is Succeeds, for as long as limit.
func SucceedsWithin(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	if err := Try(limit, check); err != nil {
		t.Fatalf("%s: not within %s: %v", what, limit, err)
	}
}

// Try is SucceedsWithin for what has no test to end: it returns check's last error, wrapped
// in nothing. It checks at least once, and once more after the limit, so that a process which
// did not run in between is not taken for a check that failed.
func Try(limit time.Duration, check func() error) error {
	end := time.Now().Add(limit)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		late := time.Now().After(end)
		err := check()
		var final *finalError
		if errors.As(err, &final) {
			return final.error
		}
		if err == nil || late {
			return err
		}
		time.Sleep(pause)
	}
}

// Pass advances the fake clock of a bubble of testing/synctest by d, and returns once everything else in
// the bubble waits again. It panics outside of a bubble, where time would really pass.
func Pass(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

// Final is an error after which there is nothing to wait for, such as that the process has
// exited which should have answered.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// errFalse is what a check that reports false has found.
var errFalse = errors.New("it is not so")

func holds(ok bool) error {
	if ok {
		return nil
	}
	return errFalse
}
