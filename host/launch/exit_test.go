// SPDX-License-Identifier: Apache-2.0

package launch

import "testing"

// The last line of a dump of all goroutines is a register.
func TestAnExitSaysWhy(t *testing.T) {
	for _, c := range []struct {
		said []string
		want string
	}{
		{nil, "exited with code 2"},
		{[]string{"thinking", "no steam"}, "exited with code 2: no steam"},
		{[]string{"panic: no steam", "goroutine 1"}, "exited with code 2: panic: no steam"},
		{[]string{"SIGQUIT: quit", "goroutine 1", "gs     0x0"}, "exited with code 2: SIGQUIT: quit"},
	} {
		if got := (Exit{Code: 2, Stderr: c.said}).String(); got != c.want {
			t.Errorf("after %q it %q, want %q", c.said, got, c.want)
		}
	}
}
