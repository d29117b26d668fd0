// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/track"
)

// TestPause: what the API server tells waits for a tenth of the gap between two updates, and never
// for long; the first list does not.
func TestPause(t *testing.T) {
	for lines, want := range map[string]time.Duration{
		"":                     100 * time.Millisecond,
		"minSyncPeriod: 200ms": 20 * time.Millisecond,
		"minSyncPeriod: 30s":   100 * time.Millisecond,
		"minSyncPeriod: 0s":    0,
	} {
		tracker := track.New(func(track.Notice) {})
		h := &host{tracker: tracker, follower: config.Follow(hostOf(t, lines), nil, time.Now)}
		if got := h.pause(); got != 0 {
			t.Errorf("%s: before all is known it waits for %s", lines, got)
		}
		tracker.Synced()
		if got := h.pause(); got != want {
			t.Errorf("%s: it waits for %s, want %s", lines, got, want)
		}
	}
}
