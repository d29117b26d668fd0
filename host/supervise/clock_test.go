// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"strings"
	"testing"
	"time"
)

// TestClockSet holds the machine to instants that the wall's clock has no part in: each
// that it keeps carries the reading of a clock that only goes forward, so setting
// the time ends no backoff and no deadline. (To set it for one process alone is
// not to be had: time namespaces leave the wall's clock as it is.)
func TestClockSet(t *testing.T) {
	var m Machine
	for _, kind := range []EventKind{Begin, Launched, Beat, Missed, Beat, Missed, Missed, Restart, Failed, Restart, Refuses, Restart, Failed, Restart, Failed, Restart, Launched, Refuses} {
		m, _ = m.Step(Event{Kind: kind}, time.Now(), most)
		for what, at := range map[string]time.Time{"Since": m.Since, "Up": m.Up, "Next": m.Next} {
			if !at.IsZero() && !strings.Contains(at.String(), " m=") {
				t.Errorf("in %s, %s is by the wall's clock alone: %s", m.State, what, at)
			}
		}
	}
}
