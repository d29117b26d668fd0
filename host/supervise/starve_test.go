// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"testing"
	"time"
)

// TestExcused tells a process that hangs from one that is not run.
func TestExcused(t *testing.T) {
	const second = time.Second
	for name, c := range map[string]struct {
		unanswered
		want bool
	}{
		"is stopped":                             {unanswered{2 * second, 0, 0}, false},
		"waits for what never comes":             {unanswered{2 * second, 0, second / 50}, false},
		"runs in circles":                        {unanswered{2 * second, 4 * second, 0}, false},
		"runs in more circles than there can be": {unanswered{2 * second, 2 * second, 30 * second}, false},
		"is hardly let run":                      {unanswered{2 * second, second / 5, 5 * second}, true},
		"is hardly let run, and breaks off":      {unanswered{second / 5, 0, second}, false},
		"was asked by one that was not run":      {unanswered{600 * second, 0, 0}, true},
	} {
		if got := c.excused(); got != c.want {
			t.Errorf("one that %s: excused %t, want %t", name, got, c.want)
		}
	}
}
