// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"testing"
	"time"
)

// TestExcused tells who hangs from who is not let run.
func TestExcused(t *testing.T) {
	const second = time.Second
	for name, c := range map[string]struct {
		spell
		want bool
	}{
		"is stopped":                             {spell{2 * second, 0, 0}, false},
		"waits for what never comes":             {spell{2 * second, 0, second / 50}, false},
		"runs in circles":                        {spell{2 * second, 4 * second, 0}, false},
		"runs in more circles than there can be": {spell{2 * second, 2 * second, 30 * second}, false},
		"is hardly let run":                      {spell{2 * second, second / 5, 5 * second}, true},
		"is hardly let run, and breaks off":      {spell{second / 5, 0, second}, false},
		"was asked by one that was not run":      {spell{600 * second, 0, 0}, true},
	} {
		if got := c.excused(); got != c.want {
			t.Errorf("one that %s: excused %t, want %t", name, got, c.want)
		}
	}
}
