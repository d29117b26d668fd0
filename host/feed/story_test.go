// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A story is a feed between a fake cursor and a fake dataplane that the test controls. It records events, one per line:
// "14s sync 2" happened 14 s after the start. It runs in a bubble of testing/synctest, so the test controls the time.
type story struct {
	t     *testing.T
	start time.Time
	feed  *Feed
	gone  chan struct{}
	ended chan error

	answers chan answer // results of the next Syncs

	mu      sync.Mutex // guards the fields below
	lines   []string
	changed chan struct{}
	sent    uint64
	full    bool
	owe     bool
}

type answer struct {
	result sdk.Result
	err    error
}

// inBubble runs a story in a bubble.
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
	y.feed = New(y, y, s)
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

func (y *story) Retry()  { y.say("retry"); y.change() }
func (y *story) Resync() { y.mu.Lock(); y.full = true; y.mu.Unlock(); y.signal() }

func (y *story) Changed() <-chan struct{} { return y.changed }

// change gives the cursor an update.
func (y *story) change() {
	y.mu.Lock()
	y.owe = true
	y.mu.Unlock()
	y.signal()
}

func (y *story) signal() {
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
		return a.result, a.err
	case <-ctx.Done():
		return sdk.Result{}, ctx.Err()
	}
}

// until waits until nothing more happens, and checks the end of the last line.
func (y *story) until(line string) {
	y.t.Helper()
	synctest.Wait()
	if so := y.transcript(); !strings.HasSuffix(so, line) {
		y.t.Fatalf("%q is not the last event:\n%s", line, so)
	}
}

func (y *story) transcript() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return strings.Join(y.lines, "\n")
}
