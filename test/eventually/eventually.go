// SPDX-License-Identifier: Apache-2.0

// Package eventually lets tests wait for what another goroutine, another process or the kernel does. A test that sleeps
// instead is too short on a busy machine and too long on an idle one. For code that has a clock of its own, use
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

// Timeout limits True and Succeeds. It is many times what anything should take, since a busy machine is no failure.
const Timeout = 2 * time.Minute

// The pause between two checks grows: a short wait ends at once, and a long one leaves the processor to what it waits
// for.
const (
	firstPause   = time.Millisecond
	longestPause = 50 * time.Millisecond
)

// True waits until check reports true, and ends the test if that takes too long. what is a sentence that should become
// true: "the plugin exits".
func True(t testing.TB, what string, check func() bool) {
	t.Helper()
	TrueWithin(t, Timeout, what, check)
}

// TrueWithin is True with another limit.
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

// SucceedsWithin is Succeeds with another limit.
func SucceedsWithin(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	if err := Try(limit, check); err != nil {
		t.Fatalf("%s: not within %s: %v", what, limit, err)
	}
}

// Try is SucceedsWithin without a test: it returns check's last error, not wrapped. It checks at least once, and once
// more after the limit, so that a process that got no processor time is not taken for a failed check.
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

// Pass advances the fake clock of a bubble of testing/synctest by d, and returns when everything else in the bubble
// waits again. It panics outside of a bubble.
func Pass(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

// Final returns an error that ends the wait, such as that the process that should answer has exited.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// errFalse is the error of a check that reports false.
var errFalse = errors.New("it is not so")

func holds(ok bool) error {
	if ok {
		return nil
	}
	return errFalse
}
