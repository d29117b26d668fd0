// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

var _ Cursor = (*track.Cursor)(nil)

// A story is one feed between a cursor and a dataplane that do as the test says.
// What happens is written down, a line each; "14s sync 2" happened 14 s after the
// start, in a bubble of testing/synctest: its time passes as the test lets it.
type story struct {
	t     *testing.T
	start time.Time
	feed  *Feed
	gone  chan struct{}
	ended chan error

	answers chan answer // what the dataplane does with the next Sync

	mu      sync.Mutex // guards what follows
	lines   []string
	changed chan struct{}
	sent    uint64
	full    bool
	owe     bool
}

type answer struct {
	result sdk.Result
	err    error
	took   time.Duration
}

// inBubble has a story play in one.
func inBubble(t *testing.T, s Settings, play func(t *testing.T, y *story)) {
	synctest.Test(t, func(t *testing.T) { play(t, begin(t, s)) })
}

func begin(t *testing.T, s Settings) *story {
	y := &story{
		t: t, start: time.Now(), gone: make(chan struct{}), ended: make(chan error, 1),
		answers: make(chan answer, 10), changed: make(chan struct{}, 1),
	}
	s.Gone = y.gone
	s.Hooks = Hooks{
		Acked:  func(a Acked) { y.say("acked %d after %s", a.Update.To, a.Took) },
		Failed: func(err error) { y.say("failed: %v", err) },
	}
	var err error
	if y.feed, err = New(clock.RealClock{}, y, y, s); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); y.ended <- y.feed.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ran })
	return y
}

func (y *story) say(format string, args ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.lines = append(y.lines, fmt.Sprintf("%s ", time.Since(y.start))+fmt.Sprintf(format, args...))
}

// The cursor.

func (y *story) Next() (sdk.Update, bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.owe && !y.full {
		return sdk.Update{}, false
	}
	u := sdk.Update{From: y.sent, To: y.sent + 1, Full: y.full}
	y.sent++
	return u, true
}

func (y *story) Ack(revision uint64, failed []sdk.Failure) []time.Time {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.owe, y.full = false, false
	return nil
}

func (y *story) Planned(revision uint64, failed []sdk.Failure) {
	y.say("planned %d", revision)
	y.Ack(revision, failed)
}

func (y *story) Served(revision uint64, failed []sdk.Failure) []time.Time {
	y.say("served %d, %d failed", revision, len(failed))
	return nil
}

func (y *story) Retry()  { y.say("retry"); y.change() }
func (y *story) Resync() { y.mu.Lock(); y.full = true; y.mu.Unlock() }

func (y *story) Changed() <-chan struct{} { return y.changed }

// change makes the cursor owe something.
func (y *story) change() {
	y.mu.Lock()
	y.owe = true
	y.mu.Unlock()
	select {
	case y.changed <- struct{}{}:
	default:
	}
}

// The dataplane.

func (y *story) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	what := "sync"
	if u.Full {
		what = "full"
	}
	y.say("%s %d", what, u.To)
	select {
	case a := <-y.answers:
		time.Sleep(a.took)
		return a.result, a.err
	case <-ctx.Done():
		return sdk.Result{}, ctx.Err()
	}
}

// until wants the story to have come to a line that ends so, once nothing more happens by
// itself.
func (y *story) until(line string) {
	y.t.Helper()
	synctest.Wait()
	if so := y.transcript(); !strings.HasSuffix(so, line) {
		y.t.Fatalf("%q is not what happened last:\n%s", line, so)
	}
}

// pass lets d pass once the feed waits for it.
func (y *story) pass(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
}

func (y *story) transcript() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return strings.Join(y.lines, "\n")
}

var settings = Settings{MinGap: time.Second, Retry: time.Second, Period: 30 * time.Second}

func TestStories(t *testing.T) {
	broken := errors.New("no room")
	failure := sdk.Result{Failed: []sdk.Failure{{Name: sdk.Name{Namespace: "ns", Service: "web"}, Err: broken}}}
	refused := sdk.Result{Failed: []sdk.Failure{{Err: &sdk.Refusal{Why: "no SCTP here"}}}}
	for _, tc := range []struct {
		name string
		play func(y *story)
		want string
	}{
		{"everything first, then what changes, no oftener than the gap", func(y *story) {
			y.answers <- answer{took: 2 * time.Second}
			y.pass(2 * time.Second)
			y.until("acked 1 after 2s")
			y.change()
			y.answers <- answer{}
			y.pass(time.Second)
			y.until("acked 2 after 0s")
		}, `
0s full 1
2s acked 1 after 2s
3s sync 2
3s acked 2 after 0s`},
		{"a dataplane that lost the thread gets everything at once", func(y *story) {
			y.answers <- answer{}
			y.until("acked 1 after 0s")
			y.change()
			y.answers <- answer{err: fmt.Errorf("update leads from 1: %w", sdk.ErrResync)}
			y.answers <- answer{}
			y.pass(time.Second)
			y.until("acked 3 after 0s")
		}, `
0s full 1
0s acked 1 after 0s
1s sync 2
1s full 3
1s acked 3 after 0s`},
		{"what is only planned is confirmed as that, and not sent again", func(y *story) {
			y.answers <- answer{result: sdk.Result{Planned: true}}
			y.until("acked 1 after 0s")
			y.feed.Served(1, failure.Failed)
			y.answers <- answer{}
			y.pass(30 * time.Second)
			y.until("acked 2 after 0s")
		}, `
0s full 1
0s planned 1
0s acked 1 after 0s
0s served 1, 1 failed
30s retry
30s sync 2
30s acked 2 after 0s`},
		{"an error is tried again, ever later, and nothing hastens it", func(y *story) {
			for i, wait := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
				y.answers <- answer{err: broken}
				y.until("no room")
				y.change()
				y.pass(wait * time.Second)
				y.until(fmt.Sprintf("full %d", i+2))
			}
			y.answers <- answer{}
			y.until("acked 8 after 0s")
			y.change()
			y.answers <- answer{err: broken}
			y.pass(time.Second)
			y.until("no room")
		}, `
0s full 1
0s failed: sync revision 1 (0 set, 0 deleted): no room
1s full 2
1s failed: sync revision 2 (0 set, 0 deleted): no room
3s full 3
3s failed: sync revision 3 (0 set, 0 deleted): no room
7s full 4
7s failed: sync revision 4 (0 set, 0 deleted): no room
15s full 5
15s failed: sync revision 5 (0 set, 0 deleted): no room
31s full 6
31s failed: sync revision 6 (0 set, 0 deleted): no room
1m1s full 7
1m1s failed: sync revision 7 (0 set, 0 deleted): no room
1m31s full 8
1m31s acked 8 after 0s
1m32s sync 9
1m32s failed: sync revision 9 (0 set, 0 deleted): no room`},
		{"one that says resync to everything is broken, and waited for", func(y *story) {
			y.answers <- answer{err: sdk.ErrResync}
			y.answers <- answer{err: sdk.ErrResync}
			y.until("needed")
			y.answers <- answer{}
			y.pass(time.Second)
			y.until("acked 3 after 0s")
		}, `
0s full 1
0s full 2
0s failed: sync revision 2 (0 set, 0 deleted): resync: a full update is needed
1s full 3
1s acked 3 after 0s`},
		{"what failed is offered again each period, beside other changes", func(y *story) {
			y.answers <- answer{result: failure}
			y.until("acked 1 after 0s")
			y.pass(20 * time.Second)
			y.change()
			y.answers <- answer{}
			y.until("acked 2 after 0s")
			y.pass(10 * time.Second)
			y.change()
			y.answers <- answer{}
			y.until("acked 3 after 0s")
		}, `
0s full 1
0s acked 1 after 0s
20s sync 2
20s acked 2 after 0s
30s retry
30s sync 3
30s acked 3 after 0s`},
		{"what was refused is not offered again", func(y *story) {
			y.answers <- answer{result: refused}
			y.until("acked 1 after 0s")
			y.change()
			y.answers <- answer{}
			y.pass(time.Second)
			y.until("acked 2 after 0s")
			y.pass(time.Hour)
			y.change()
			y.answers <- answer{}
			y.until("acked 3 after 0s")
		}, `
0s full 1
0s acked 1 after 0s
1s sync 2
1s acked 2 after 0s
1h0m1s sync 3
1h0m1s acked 3 after 0s`},
		{"a feed that is held tells nothing, then everything that came meanwhile", func(y *story) {
			y.answers <- answer{}
			y.until("acked 1 after 0s")
			if err := y.feed.Hold(y.t.Context()); err != nil {
				y.t.Error(err)
			}
			y.change()
			y.pass(time.Minute)
			y.say("released")
			y.feed.Release()
			y.answers <- answer{}
			y.until("acked 2 after 0s")
		}, `
0s full 1
0s acked 1 after 0s
1m0s released
1m0s sync 2
1m0s acked 2 after 0s`},
		{"nothing to tell takes no time", func(y *story) {
			y.answers <- answer{}
			y.until("acked 1 after 0s")
			y.pass(time.Minute)
			y.feed.runner.Kick()
			y.change()
			y.answers <- answer{}
			y.until("acked 2 after 0s")
		}, `
0s full 1
0s acked 1 after 0s
1m0s sync 2
1m0s acked 2 after 0s`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, settings, func(t *testing.T, y *story) {
				tc.play(y)
				if got, want := y.transcript(), strings.TrimPrefix(tc.want, "\n"); got != want {
					t.Errorf("it went\n%s\nwant\n%s", got, want)
				}
			})
		})
	}
}

func TestGone(t *testing.T) {
	inBubble(t, settings, func(t *testing.T, y *story) {
		y.until("full 1") // and no answer
		close(y.gone)
		if err := <-y.ended; !errors.Is(err, ErrGone) {
			t.Errorf("ended with %v", err)
		}
		if got := y.transcript(); got != "0s full 1" {
			t.Errorf("it went\n%s", got)
		}
	})
}

func TestDeadline(t *testing.T) {
	s := settings
	s.Deadline = time.Millisecond
	inBubble(t, s, func(t *testing.T, y *story) {
		y.pass(s.Deadline)
		y.until("context deadline exceeded")
	})
}

func TestHoldEndsWithItsContext(t *testing.T) {
	inBubble(t, settings, func(t *testing.T, y *story) {
		y.until("full 1") // under way
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := y.feed.Hold(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("held: %v", err)
		}
	})
}

// A shorter period counts for what is owed already: it is offered again before
// the longer one would have ended.
func TestPeriodsChange(t *testing.T) {
	inBubble(t, settings, func(t *testing.T, y *story) {
		y.answers <- answer{result: sdk.Result{Failed: []sdk.Failure{{Err: errors.New("no room")}}}}
		y.until("acked 1 after 0s")
		if err := y.feed.SetPeriods(time.Second, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		y.answers <- answer{}
		y.pass(5 * time.Second)
		y.until("acked 2 after 0s")
	})
}

// A change that waits for a long gap to end goes when the gap is made short.
func TestAShorterGapHastens(t *testing.T) {
	inBubble(t, Settings{MinGap: time.Hour, Retry: time.Second, Period: time.Hour}, func(t *testing.T, y *story) {
		y.answers <- answer{}
		y.until("acked 1 after 0s")
		y.change()
		y.pass(2 * time.Second) // it waits
		y.answers <- answer{}
		if err := y.feed.SetPeriods(time.Second, time.Minute); err != nil {
			t.Fatal(err)
		}
		y.until("acked 2 after 0s")
		if now := time.Since(y.start); now > time.Minute {
			t.Errorf("after %s", now)
		}
	})
}

func TestPeriodsThatCannotBe(t *testing.T) {
	inBubble(t, settings, func(t *testing.T, y *story) {
		if err := y.feed.SetPeriods(-time.Second, time.Second); err == nil {
			t.Error("takes a negative gap")
		}
		for _, s := range []Settings{{MinGap: -1, Retry: 1, Period: 1}, {Period: 1}, {Retry: 1}} {
			if _, err := New(clock.RealClock{}, y, y, s); err == nil {
				t.Errorf("begins with %+v", s)
			}
		}
	})
}

// The real cursor, tracker and dataplane contract together.
func TestWithTracker(t *testing.T) {
	served := make(chan sdk.State, 10)
	dataplane := sdk.Whole(sdk.Description{Name: "test"}, func(_ context.Context, s sdk.State) error {
		served <- s
		return nil
	})
	if _, err := dataplane.Configure(t.Context(), sdk.Setup{}); err != nil {
		t.Fatal(err)
	}
	tracker := track.New(nil)
	cursor := tracker.Cursor(sdk.Description{Name: "test"})
	f, err := New(clock.RealClock{}, cursor, dataplane, settings)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	tracker.Synced()
	select {
	case <-served:
	case <-time.After(time.Minute):
		t.Fatal("nothing is served")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
