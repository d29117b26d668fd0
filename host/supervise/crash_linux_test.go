// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"strings"
	"testing"
)

// TestCrashSaysWhere: why a plugin ended names the panic, and its log the line.
func TestCrashSaysWhere(t *testing.T) {
	for how, where := range map[string]string{"panic": "(*plugin).Sync", "panic-early": "(*plugin).Configure"} {
		t.Run(how, func(t *testing.T) {
			y := newHarness(t, how)
			y.run()
			y.until("crashed", func(s Status) bool { return strings.Contains(s.Why+s.LastEnd, "panic: no steam") })
			y.until("logged where", func(Status) bool { // which may come after its end
				y.mu.Lock()
				defer y.mu.Unlock()
				said := strings.Join(y.logged, "\n")
				return strings.Contains(said, "panic: no steam") && strings.Contains(said, where)
			})
		})
	}
}
