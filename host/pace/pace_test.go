// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/pointsman/pointsman/test/eventually"
)

// A track is a Runner in a bubble of testing/synctest, whose time the test lets pass. Each
// run waits until the test lets it end, so that nothing depends on how fast this machine is.
type track struct {
	t      *testing.T
	start  time.Time
	runner *Runner
	asks   chan struct{}
	runs   chan string // when each run started
	end    chan error  // what each run comes to
}

// inBubble plays with a track.
func inBubble(t *testing.T, gaps Gaps, play func(k *track)) {
	synctest.Test(t, func(t *testing.T) {
		k := &track{t: t, start: time.Now(), asks: make(chan struct{}, 1), runs: make(chan string), end: make(chan error)}
		k.runner = New(clock.RealClock{}, gaps, k.asks, func(ctx context.Context) error {
			k.runs <- time.Since(k.start).String()
			return <-k.end
		})
		play(k)
	})
}

// ask asks for a run, as a cursor does.
func (k *track) ask() {
	select {
	case k.asks <- struct{}{}:
	default:
	}
}

// begin starts the runner; its end belongs to the test.
func (k *track) begin() {
	ctx, cancel := context.WithCancel(k.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); k.runner.Run(ctx) }()
	k.t.Cleanup(func() { cancel(); <-ended })
}

// started says when the run started that is under way.
func (k *track) started() string {
	k.t.Helper()
	synctest.Wait()
	select {
	case at := <-k.runs:
		return at
	default:
		k.t.Fatal("no run")
		return ""
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
				k.ask()
				first := k.started()
				eventually.Pass(5 * time.Second) // the run takes so long
				k.ask()
				k.end <- nil
				eventually.Pass(time.Second)
				second := k.started()
				k.end <- nil
				return []string{first, second}
			}, "0s 6s"},
		{"asking often is one run",
			Gaps{Min: time.Second, Max: time.Hour},
			func(k *track) []string {
				k.ask()
				first := k.started()
				for range 100 {
					k.ask()
				}
				k.end <- nil
				eventually.Pass(time.Second)
				second := k.started()
				k.end <- nil
				eventually.Pass(time.Hour)
				third := k.started()
				k.end <- nil
				return []string{first, second, third}
			}, "0s 1s 1h0m1s"},
		{"after a quiet time at once, and no burst follows",
			Gaps{Min: time.Second, Max: time.Hour},
			func(k *track) []string {
				k.ask()
				starts := []string{k.started()}
				k.end <- nil
				eventually.Pass(time.Minute)
				for range 2 {
					k.ask()
					starts = append(starts, k.started())
					k.ask()
					k.end <- nil
					eventually.Pass(time.Second)
				}
				starts = append(starts, k.started())
				k.end <- nil
				return starts
			}, "0s 1m0s 1m1s 1m2s"},
		{"a failure is tried again, until it succeeds",
			Gaps{Min: time.Second, Retry: 30 * time.Second, Max: time.Hour},
			func(k *track) []string {
				k.ask()
				starts := []string{k.started()}
				k.end <- failure
				eventually.Pass(30 * time.Second)
				starts = append(starts, k.started())
				k.end <- failure
				eventually.Pass(30 * time.Second)
				starts = append(starts, k.started())
				k.end <- nil
				eventually.Pass(time.Hour)
				starts = append(starts, k.started())
				k.end <- nil
				return starts
			}, "0s 30s 1m0s 1h1m0s"},
		{"nothing asks: the longest gap, counted from the end",
			Gaps{Min: time.Second, Max: time.Minute},
			func(k *track) []string {
				eventually.Pass(time.Minute)
				first := k.started()
				eventually.Pass(10 * time.Second)
				k.end <- nil
				eventually.Pass(time.Minute)
				second := k.started()
				k.end <- nil
				return []string{first, second}
			}, "1m0s 2m10s"},
		{"shorter gaps count at once",
			Gaps{Min: time.Second, Max: time.Hour},
			func(k *track) []string {
				k.ask()
				first := k.started()
				k.end <- nil
				synctest.Wait()
				k.runner.SetGaps(Gaps{Min: time.Second, Max: time.Minute})
				eventually.Pass(time.Minute)
				second := k.started()
				k.end <- nil
				return []string{first, second}
			}, "0s 1m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, tc.gaps, func(k *track) {
				k.begin()
				if got := strings.Join(tc.play(k), " "); got != tc.want {
					k.t.Errorf("runs at %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestWhatIsAskedBeforeRunIsNotLost(t *testing.T) {
	inBubble(t, Gaps{Min: time.Second}, func(k *track) {
		k.ask()
		k.begin()
		if at := k.started(); at != "0s" {
			k.t.Errorf("run at %s", at)
		}
		k.end <- nil
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asks := make(chan struct{}, 1)
	asks <- struct{}{}
	r := New(clock.RealClock{}, Gaps{}, asks, func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	})
	r.Run(ctx) // returns, or the test runs out of time
}

func TestNext(t *testing.T) {
	end := time.Unix(1000, 0)
	gaps := Gaps{Min: time.Second, Retry: 30 * time.Second, Max: time.Hour}
	for _, tc := range []struct {
		name  string
		state state
		gaps  Gaps
		want  string // after the end of the run before
	}{
		{"nothing asked, nothing run: the longest gap", state{}, gaps, "1h0m0s"},
		{"the first time at once", state{requested: true}, gaps, "0s"},
		{"later, the shortest gap is kept", state{requested: true, worked: end}, gaps, "1s"},
		{"nothing asked", state{worked: end}, gaps, "1h0m0s"},
		{"nothing asked, no longest gap", state{worked: end}, Gaps{Min: time.Second}, "never"},
		{"failed", state{worked: end, failed: true}, gaps, "30s"},
		{"failed, no longest gap", state{worked: end, failed: true}, Gaps{Retry: time.Minute}, "1m0s"},
		{"failed, and asked for: that comes first", state{worked: end, failed: true, requested: true}, gaps, "1s"},
		{"failed, the longest gap comes first", state{worked: end, failed: true}, Gaps{Retry: time.Minute, Max: time.Second}, "1s"},
		{"failed, without a gap of its own", state{worked: end, failed: true}, Gaps{Min: time.Second}, "1s"},
		{"a retry keeps the shortest gap", state{worked: end, failed: true}, Gaps{Min: time.Second, Retry: time.Millisecond}, "1s"},
		{"no gaps at all", state{worked: end, requested: true}, Gaps{}, "0s"},
		{"asked for after a run that had nothing to do", state{end: end}.afterRun(ErrIdle, end).ask(), gaps, "0s"},
		{"asked for after such a run, and one before it that had", state{worked: end.Add(-100 * time.Millisecond)}.afterRun(ErrIdle, end).ask(), gaps, "900ms"},
		{"nothing asked after a run that had nothing to do", state{failed: true}.afterRun(ErrIdle, end), gaps, "1h0m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.state.end = end
			start, due := tc.state.next(tc.gaps)
			got := fmt.Sprint(start.Sub(end))
			if !due {
				got = "never"
			}
			if got != tc.want {
				t.Errorf("next run after %s, want %s", got, tc.want)
			}
		})
	}
}

func (s state) ask() state { s.requested = true; return s }
