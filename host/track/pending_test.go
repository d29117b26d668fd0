// SPDX-License-Identifier: Apache-2.0

package track

import "testing"

// TestPendingWhileFull: until everything was confirmed, everything is pending, but for what is
// kept from the dataplane; and again once everything is to be sent again.
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
	pending("at the beginning", 2)
	nextUpdate(c)
	pending("confirmed", 0)
	c.Resync()
	pending("everything is to be sent again", 2)
}
