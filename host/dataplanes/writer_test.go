// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"testing"
	"time"
)

// TestWriterLacks reports a missing lock once it has been missing for a while, of one that is
// Active only, and that it is there again.
func TestWriterLacks(t *testing.T) {
	var w writer
	now := time.Now()
	for i, c := range []struct {
		why    string
		active bool
		after  time.Duration
		news   bool
	}{
		{"", true, 0, false},
		{"pid 7 holds the writer's lock", true, 0, false}, // it may be a tool that ends
		{"pid 7 holds the writer's lock", false, 2 * lockGrace, false},
		{"pid 7 holds the writer's lock", true, 0, true},
		{"pid 7 holds the writer's lock", true, lockGrace, false},
		{"", false, lockGrace, true},
		{"", true, lockGrace, false},
	} {
		now = now.Add(c.after)
		var news bool
		if w, news = w.lacks(c.why, c.active, now); news != c.news {
			t.Errorf("%d: %q is news: %t", i, c.why, news)
		}
	}
}
