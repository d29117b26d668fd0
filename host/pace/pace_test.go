// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// A track is a Runner under a clock that the test moves. Each run waits until the
// test lets it end, so that nothing depends on how fast this machine is.
type track struct {
	t      *testing.T
	clock  *testclock.FakeClock
	start  time.Time
	runner *Runner
	runs   chan string // when each run started
	end    chan error  // what each run comes to
	asleep func() bool // the runner waits for a timer
}

func newTrack(t *testing.T, gaps Gaps) *track {
	start := time.Unix(1000, 0)
	k := &track{t: t, clock: testclock.NewFakeClock(start), start: start, runs: make(chan string), end: make(chan error)}
	runner, err := New(k.clock, gaps, func(ctx context.Context) error {
		k.runs <- fmt.Sprint(k.clock.Since(start))
		return <-k.end
	})
	if err != nil {
		t.Fatal(err)
	}
	k.runner = runner
	k.asleep = k.clock.HasWaiters
	return k
}

// begin starts the runner; its end belongs to the test.
func (k *track) begin() {
	ctx, cancel := context.WithCancel(k.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); k.runner.Run(ctx) }()
	k.t.Cleanup(func() { cancel(); <-ended })
}

// started waits for a run, and says when it started.
func (k *track) started() string {
	k.t.Helper()
	select {
	case at := <-k.runs:
		return at
	case <-time.After(time.Minute):
		k.t.Fatal("no run")
		return ""
	}
}

// pass lets d pass, once the runner waits.
func (k *track) pass(d time.Duration) {
	k.t.Helper()
	k.await("the runner to wait", k.asleep)
	k.clock.Step(d)
}

func (k *track) await(what string, ok func() bool) {
	k.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			k.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestRuns(t *testing.T) {
	failure := errors.New("no")
	for _, tc := range []struct {
		name string
		gaps Gaps
		play func(k *track) (starts []string)
		want string
	}{
		{"the first change goes at once, the next after the gap, counted from the end",
			Gaps{Min: time.Second, Max: time.Hour},
			func(k *track) []string {
				k.runner.Kick()
				first := k.started()
				k.clock.Step(5 * time.Second) // the run takes so long
				k.runner.Kick()
				k.end <- nil
				k.pass(time.Second)
				second := k.started()
				k.end <- nil
				return []string{first, second}
			}, "0s 6s"},
		{"many kicks are one run",
			Gaps{Min: time.Second, Max: time.Hour},
			func(k *track) []string {
				k.runner.Kick()
				first := k.started()
				for range 100 {
					k.runner.Kick()
				}
				k.end <- nil
				k.pass(time.Second)
				second := k.started()
				k.end <- nil
				k.pass(time.Hour)
				third := k.started()
				k.end <- nil
				return []string{first, second, third}
			}, "0s 1s 1h0m1s"},
		{"after a quiet time at once, and no burst follows",
			Gaps{Min: time.Second, Max: time.Hour},
			func(k *track) []string {
				k.runner.Kick()
				starts := []string{k.started()}
				k.end <- nil
				k.pass(time.Minute)
				for range 2 {
					k.runner.Kick()
					starts = append(starts, k.started())
					k.runner.Kick()
					k.end <- nil
					k.pass(time.Second)
				}
				starts = append(starts, k.started())
				k.end <- nil
				return starts
			}, "0s 1m0s 1m1s 1m2s"},
		{"a failure is tried again, until it succeeds",
			Gaps{Min: time.Second, Retry: 30 * time.Second, Max: time.Hour},
			func(k *track) []string {
				k.runner.Kick()
				starts := []string{k.started()}
				k.end <- failure
				k.pass(30 * time.Second)
				starts = append(starts, k.started())
				k.end <- failure
				k.pass(30 * time.Second)
				starts = append(starts, k.started())
				k.end <- nil
				k.pass(time.Hour)
				starts = append(starts, k.started())
				k.end <- nil
				return starts
			}, "0s 30s 1m0s 1h1m0s"},
		{"nothing asks: the longest gap, counted from the end",
			Gaps{Min: time.Second, Max: time.Minute},
			func(k *track) []string {
				k.pass(time.Minute)
				first := k.started()
				k.clock.Step(10 * time.Second)
				k.end <- nil
				k.pass(time.Minute)
				second := k.started()
				k.end <- nil
				return []string{first, second}
			}, "1m0s 2m10s"},
		{"shorter gaps count at once",
			Gaps{Min: time.Second, Max: time.Hour},
			func(k *track) []string {
				k.runner.Kick()
				first := k.started()
				k.end <- nil
				k.await("the runner to wait", k.asleep)
				if err := k.runner.SetGaps(Gaps{Min: time.Second, Max: time.Minute}); err != nil {
					k.t.Fatal(err)
				}
				k.await("the new gap to count", func() bool { return len(k.runner.wake) == 0 && k.asleep() })
				k.step(time.Minute)
				second := k.started()
				k.end <- nil
				return []string{first, second}
			}, "0s 1m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newTrack(t, tc.gaps)
			k.begin()
			if got := strings.Join(tc.play(k), " "); got != tc.want {
				t.Errorf("runs at %s, want %s", got, tc.want)
			}
		})
	}
}

// step lets d pass in small steps, for a runner that may be between two waits.
func (k *track) step(d time.Duration) {
	for range 60 {
		k.await("the runner to wait", k.asleep)
		k.clock.Step(d / 60)
	}
}

func TestAKickBeforeRunIsNotLost(t *testing.T) {
	k := newTrack(t, Gaps{Min: time.Second})
	k.runner.Kick()
	k.begin()
	if at := k.started(); at != "0s" {
		t.Errorf("run at %s", at)
	}
	k.end <- nil
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := New(testclock.NewFakeClock(time.Unix(0, 0)), Gaps{}, func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Kick()
	r.Run(ctx) // returns, or the test runs out of time
}

func TestGapsThatCannotBe(t *testing.T) {
	for _, g := range []Gaps{{Min: 2, Max: 1}, {Min: -1}, {Retry: -1}, {Max: -1}} {
		if _, err := New(testclock.NewFakeClock(time.Unix(0, 0)), g, nil); err == nil {
			t.Errorf("New takes %+v", g)
		}
		r, err := New(testclock.NewFakeClock(time.Unix(0, 0)), Gaps{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.SetGaps(g); err == nil {
			t.Errorf("SetGaps takes %+v", g)
		}
	}
}
