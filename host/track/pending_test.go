// SPDX-License-Identifier: Apache-2.0

package track

import "testing"

// TestPendingWhileFull: all Services are pending from the start, and from a Resync, until a Full
// is confirmed.
func TestPendingWhileFull(t *testing.T) {
	tracker, _ := newTracker()
	tracker.SetService(newService("web", "172.30.0.1"))
	tracker.SetService(newService("api", "172.30.0.2"))
	c := tracker.Cursor(everything)
	pending := func(when string, want int) {
		t.Helper()
		if s := c.Status(); s.Pending != want {
			t.Errorf("%s: %d pending, want %d", when, s.Pending, want)
		}
	}
	pending("at the start", 2)
	nextUpdate(c)
	pending("confirmed", 0)
	c.Resync()
	pending("after Resync", 2)
}
