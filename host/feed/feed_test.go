// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

var settings = Settings{MinGap: time.Second, Retry: time.Second, Period: 30 * time.Second}

func TestStories(t *testing.T) {
	broken := errors.New("no room")
	for _, tc := range []struct {
		name string
		play func(y *story)
		want string
	}{
		{"a Full first, then changes, with the minimum gap between them", func(y *story) {
			eventually.Pass(2 * time.Second) // the duration of the first Sync
			y.answers <- answer{}
			y.until("acked 1 after 2s")
			y.change()
			y.answers <- answer{}
			eventually.Pass(time.Second)
			y.until("acked 2 after 0s")
		}, `
0s full 1
2s acked 1 after 2s
3s sync 2
3s acked 2 after 0s`},
		{"a dataplane that asks for a resync gets a Full at once", func(y *story) {
			y.answers <- answer{}
			y.until("acked 1 after 0s")
			y.change()
			y.answers <- answer{err: fmt.Errorf("update leads from 1: %w", sdk.ErrResync)}
			y.answers <- answer{}
			eventually.Pass(time.Second)
			y.until("acked 3 after 0s")
		}, `
0s full 1
0s acked 1 after 0s
1s sync 2
1s full 3
1s acked 3 after 0s`},
		{"a busy dataplane is retried at once after RetryBusy", func(y *story) {
			y.answers <- answer{err: &sdk.Busy{Mode: "test"}}
			eventually.Pass(10 * time.Millisecond)
			y.feed.RetryBusy()
			y.answers <- answer{}
			y.until("acked 2 after 0s")
		}, `
0s full 1
0s failed: sync revision 1 (1 set, 0 deleted): ` + (&sdk.Busy{Mode: "test"}).Error() + `
10ms full 2
10ms acked 2 after 0s`},
		{"an error is retried with backoff, and changes do not make it earlier", func(y *story) {
			for i, wait := range []time.Duration{1, 2} {
				y.answers <- answer{err: broken}
				y.until("no room")
				y.change()
				eventually.Pass(wait * time.Second)
				y.until(fmt.Sprintf("full %d", i+2))
			}
			y.answers <- answer{}
			y.until("acked 3 after 0s")
			y.change()
			y.answers <- answer{err: broken}
			eventually.Pass(time.Second)
			y.until("no room")
		}, `
0s full 1
0s failed: sync revision 1 (1 set, 0 deleted): no room
1s full 2
1s failed: sync revision 2 (1 set, 0 deleted): no room
3s full 3
3s acked 3 after 0s
4s sync 4
4s failed: sync revision 4 (0 set, 0 deleted): no room`},
		{"ErrResync for a Full is retried with backoff", func(y *story) {
			y.answers <- answer{err: sdk.ErrResync}
			y.answers <- answer{err: sdk.ErrResync}
			y.until("needed")
			y.answers <- answer{}
			eventually.Pass(time.Second)
			y.until("acked 3 after 0s")
		}, `
0s full 1
0s full 2
0s failed: sync revision 2 (1 set, 0 deleted): resync: a full update is needed
1s full 3
1s acked 3 after 0s`},
		{"failed Services are sent again after a period", func(y *story) {
			y.answers <- fails(broken)
			y.until("acked 1 after 0s")
			eventually.Pass(20 * time.Second)
			y.change()
			y.answers <- answer{}
			y.until("acked 2 after 0s")
			y.answers <- answer{}
			eventually.Pass(10 * time.Second)
			y.until("acked 3 after 0s")
		}, `
0s full 1
0s acked 1 after 0s
20s sync 2
20s acked 2 after 0s
30s sync 3
30s acked 3 after 0s`},
		{"refused Services are not sent again", func(y *story) {
			y.answers <- fails(&sdk.Refusal{Why: "no SCTP here"})
			y.until("acked 1 after 0s")
			eventually.Pass(time.Hour)
			y.change()
			y.answers <- answer{}
			y.until("acked 2 after 0s")
		}, `
0s full 1
0s acked 1 after 0s
1h0m0s sync 2
1h0m0s acked 2 after 0s`},
		{"a held feed sends nothing until Release", func(y *story) {
			y.answers <- answer{}
			y.until("acked 1 after 0s")
			if err := y.feed.Hold(y.t.Context()); err != nil {
				y.t.Error(err)
			}
			y.change()
			eventually.Pass(time.Minute)
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
		{"after a quiet time at once, and no burst follows", func(y *story) {
			y.answers <- answer{}
			y.until("acked 1 after 0s")
			eventually.Pass(time.Minute)
			y.change()
			y.answers <- answer{}
			y.until("acked 2 after 0s")
			for range 100 {
				y.change()
			}
			y.answers <- answer{}
			eventually.Pass(time.Minute)
			y.until("acked 3 after 0s")
		}, `
0s full 1
0s acked 1 after 0s
1m0s sync 2
1m0s acked 2 after 0s
1m1s sync 3
1m1s acked 3 after 0s`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, settings, func(t *testing.T, y *story) {
				tc.play(y)
				if got, want := y.transcript(), strings.TrimPrefix(tc.want, "\n"); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
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
			t.Errorf("got\n%s", got)
		}
	})
}

func TestDeadline(t *testing.T) {
	s := settings
	s.Deadline = time.Millisecond
	inBubble(t, s, func(t *testing.T, y *story) {
		eventually.Pass(s.Deadline)
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

// A shorter period applies to Services that have failed already.
func TestPeriodsChange(t *testing.T) {
	inBubble(t, settings, func(t *testing.T, y *story) {
		y.answers <- fails(errors.New("no room"))
		y.until("acked 1 after 0s")
		y.feed.SetPeriods(time.Second, 5*time.Second)
		y.answers <- answer{}
		eventually.Pass(5 * time.Second)
		y.until("acked 2 after 0s")
	})
}

// A change that waits for a long gap is sent when the gap becomes shorter.
func TestShorterGap(t *testing.T) {
	inBubble(t, Settings{MinGap: time.Hour, Retry: time.Second, Period: time.Hour}, func(t *testing.T, y *story) {
		y.answers <- answer{}
		y.until("acked 1 after 0s")
		y.change()
		eventually.Pass(2 * time.Second) // it waits
		y.answers <- answer{}
		y.feed.SetPeriods(time.Second, time.Minute)
		y.until("\n2s acked 2 after 0s")
	})
}
