// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"testing"
	"time"
)

// TestRepairs counts the repairs that a process reports, without those before the session. A flush of both families
// counts once.
func TestRepairs(t *testing.T) {
	var r repairs
	now := time.Now()
	for _, c := range []struct {
		after time.Duration
		n     uint64
		news  uint64
		times int
	}{{0, 4, 0, 0}, {time.Second, 5, 1, 1}, {time.Second, 6, 1, 1}, {5 * time.Second, 6, 0, 1}, {time.Second, 9, 3, 2}, {time.Minute, 10, 1, 3}, {299 * time.Second, 10, 0, 1}, {10 * time.Second, 10, 0, 0}} {
		var news uint64
		now = now.Add(c.after)
		if r, news = r.addReport(c.n, now); news != c.news || len(r.times) != c.times {
			t.Errorf("after %d: %d new, %d counted; want %d, %d", c.n, news, len(r.times), c.news, c.times)
		}
	}
}
