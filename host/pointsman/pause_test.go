// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/track"
)

// TestPause: what the API server tells waits until shortly before the next update may go, and not
// before everything has been heard of once.
func TestPause(t *testing.T) {
	tracker := track.New(func(track.Notice) {})
	h := &host{tracker: tracker, follower: config.Follow(hostOf(t, "minSyncPeriod: 800ms"), nil, time.Now)}
	if got := h.pause(); got != 0 {
		t.Errorf("before all is known it waits for %s", got)
	}
	tracker.Synced()
	if got, want := h.pause(), 200*time.Millisecond; got != want {
		t.Errorf("before any update it waits for %s, want %s", got, want)
	}
	now := time.Now()
	h.updated.Store(&now)
	if got, most := h.pause(), 780*time.Millisecond; got > most || got < most/2 {
		t.Errorf("after an update it waits for %s, want %s", got, most)
	}
}

// TestPauseFor: between two updates, as one goes, where none was for long, and without a gap.
func TestPauseFor(t *testing.T) {
	for _, test := range []struct{ gap, since, want time.Duration }{
		{time.Second, 0, 980 * time.Millisecond},
		{time.Second, 900 * time.Millisecond, 80 * time.Millisecond},
		{time.Second, 980 * time.Millisecond, time.Second},
		{time.Second, 965 * time.Millisecond, time.Second},
		{time.Second, 1070 * time.Millisecond, 910 * time.Millisecond},
		{time.Second, 1090 * time.Millisecond, 250 * time.Millisecond},
		{time.Second, never, 250 * time.Millisecond},
		{30 * time.Second, 0, time.Second},
		{30 * time.Second, never, 250 * time.Millisecond},
		{100 * time.Millisecond, 0, 80 * time.Millisecond},
		{10 * time.Millisecond, never, 2500 * time.Microsecond},
		{0, 0, 0},
		{0, never, 0},
	} {
		if got := pauseFor(test.gap, test.since); got != test.want {
			t.Errorf("a gap of %s, %s after an update: %s, want %s", test.gap, test.since, got, test.want)
		}
	}
}

// TestPauseCostsNoTime: however often events come, each is in an update within the gap, give or
// take the time to decode and to write; and while they come all the time, the connection is read
// hardly more than once for each update.
func TestPauseCostsNoTime(t *testing.T) {
	const gap, took, step = time.Second, 5 * time.Millisecond, time.Millisecond
	random := rand.New(rand.NewPCG(1, 2))
	for _, between := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second} {
		var came, read []time.Duration // when the events did that are not read, and that are, but not written
		var reads, updates int
		next, paused, ended := time.Duration(0), time.Duration(0), -time.Hour
		for now := time.Duration(0); now < 5*time.Minute; now += step {
			if len(read) > 0 && now >= ended+gap {
				if wait := now - read[0]; wait > gap+took+2*decoding+2*step {
					t.Errorf("every %s: what came after %s was written after %s", between, read[0], now)
				}
				read, ended, updates = nil, now+took, updates+1
			}
			if len(came) > 0 && now >= paused {
				read, came, reads = append(read, came...), nil, reads+1
				paused = now + pauseFor(gap, now-ended)
			}
			for ; next <= now; next += time.Duration(random.Int64N(int64(2 * between))) {
				came = append(came, next)
			}
		}
		if between < 100*time.Millisecond && reads > updates+updates/4 {
			t.Errorf("every %s: %d reads for %d updates", between, reads, updates)
		}
	}
}
