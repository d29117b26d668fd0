// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"fmt"
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	end := time.Unix(1000, 0)
	gaps := Gaps{Min: time.Second, Retry: 30 * time.Second, Max: time.Hour}
	for _, tc := range []struct {
		name  string
		state state
		gaps  Gaps
		want  string // after the end of the run before
	}{
		{"nothing asked, nothing run: the longest gap", state{}, gaps, "1h0m0s"},
		{"the first kick at once", state{kicked: true}, gaps, "0s"},
		{"a later kick keeps the shortest gap", state{kicked: true, worked: end}, gaps, "1s"},
		{"nothing asked", state{worked: end}, gaps, "1h0m0s"},
		{"nothing asked, no longest gap", state{worked: end}, Gaps{Min: time.Second}, "never"},
		{"failed", state{worked: end, failed: true}, gaps, "30s"},
		{"failed, no longest gap", state{worked: end, failed: true}, Gaps{Retry: time.Minute}, "1m0s"},
		{"failed, and kicked: the kick comes first", state{worked: end, failed: true, kicked: true}, gaps, "1s"},
		{"failed, the longest gap comes first", state{worked: end, failed: true}, Gaps{Retry: time.Minute, Max: time.Second}, "1s"},
		{"failed, without a gap of its own", state{worked: end, failed: true}, Gaps{Min: time.Second}, "1s"},
		{"a retry keeps the shortest gap", state{worked: end, failed: true}, Gaps{Min: time.Second, Retry: time.Millisecond}, "1s"},
		{"no gaps at all", state{worked: end, kicked: true}, Gaps{}, "0s"},
		{"a kick after a run that had nothing to do", state{end: end}.after(ErrIdle, end).kick(), gaps, "0s"},
		{"a kick after such a run, and one before it that had", state{worked: end.Add(-100 * time.Millisecond)}.after(ErrIdle, end).kick(), gaps, "900ms"},
		{"nothing asked after a run that had nothing to do", state{failed: true}.after(ErrIdle, end), gaps, "1h0m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.state.end = end
			start, due := tc.state.next(tc.gaps)
			got := fmt.Sprint(start.Sub(end))
			if !due {
				got = "never"
			}
			if got != tc.want {
				t.Errorf("next run after %s, want %s", got, tc.want)
			}
		})
	}
}

func (s state) kick() state { s.kicked = true; return s }
