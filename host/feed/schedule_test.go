// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

func TestNext(t *testing.T) {
	end := time.Unix(1000, 0)
	usual := schedule{minGap: time.Second, retry: 30 * time.Second, period: time.Hour}
	failed := []sdk.Failure{{Err: errors.New("no room")}}
	after := func(sent bool, err error) func(*schedule) {
		return func(s *schedule) { s.afterStep(sent, err, time.Millisecond, end) }
	}
	request := func(s *schedule) { s.requested = true }
	for _, tc := range []struct {
		name   string
		s      schedule
		events []func(*schedule)
		want   string // after the end of the last step
	}{
		{"nothing requested", usual, []func(*schedule){after(true, nil)}, "never"},
		{"the first time at once", usual, []func(*schedule){after(false, nil), request}, "0s"},
		{"later after the minimum gap", usual, []func(*schedule){after(true, nil), request}, "1s"},
		{"no minimum gap", schedule{retry: 1, period: 1}, []func(*schedule){after(true, nil), request}, "0s"},
		{"after a failure, without a request", usual, []func(*schedule){after(true, errors.New("no"))}, "30s"},
		{"a request does not make a retry earlier", usual, []func(*schedule){after(true, errors.New("no")), request}, "30s"},
		{"a retry keeps the minimum gap", schedule{minGap: time.Minute, retry: 1, period: 1}, []func(*schedule){after(true, errors.New("no"))}, "1m0s"},
		{"backoff ends at the period", schedule{retry: time.Second, period: 5 * time.Second}, slices.Repeat([]func(*schedule){after(true, errors.New("no"))}, 9), "5s"},
		{"a success ends the backoff", usual, []func(*schedule){after(true, errors.New("no")), after(true, nil), request}, "1s"},
		{"a step that sent nothing does not end it", usual, []func(*schedule){after(true, errors.New("no")), after(false, nil), request}, "30s"},
		{"a step that sent nothing needs no gap", usual, []func(*schedule){func(s *schedule) { s.worked = end.Add(-100 * time.Millisecond) }, after(false, nil), request}, "900ms"},
		{"failed Services, without a request", usual, []func(*schedule){func(s *schedule) { s.addFailures(failed, end.Add(-time.Minute)) }, after(true, nil)}, "59m0s"},
		{"busy", usual, []func(*schedule){after(true, &sdk.Busy{}), request}, "100ms"},
		{"busy for 3 s", usual, []func(*schedule){func(s *schedule) { s.busySince = end.Add(-3 * time.Second) }, after(true, &sdk.Busy{})}, "1s"},
		{"busy again after a success", usual, []func(*schedule){func(s *schedule) { s.afterStep(true, &sdk.Busy{}, 1, end.Add(-time.Hour)) }, after(true, nil), after(true, &sdk.Busy{})}, "100ms"},
		{"busy, and each try is slow", usual, []func(*schedule){func(s *schedule) { s.afterStep(true, &sdk.Busy{}, time.Minute, end) }}, "10m0s"},
		{"busy, and the lock is free now", usual, []func(*schedule){after(true, &sdk.Busy{}), func(s *schedule) { s.retryNow = true }}, "0s"},
	} {
		s := tc.s
		for _, event := range tc.events {
			event(&s)
		}
		start, due := s.next()
		got := fmt.Sprint(max(0, start.Sub(end)))
		if !due {
			got = "never"
		}
		if got != tc.want {
			t.Errorf("%s: next step after %s, want %s", tc.name, got, tc.want)
		}
	}
}
