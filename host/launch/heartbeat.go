// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"time"

	"github.com/pointsman/pointsman/sdk/wire"
)

// overdueLimit is how long a call may continue after its context has ended. The contract allows
// one second; a busy node gets more.
const overdueLimit = 3 * time.Second

// stuckBeats is the number of heartbeats, one per second, that must find a call without progress before the call counts
// as hung. With the first heartbeat of the call, the host detects a hang within five seconds.
const stuckBeats = 4

// promptAnswer is the longest time that an idle process needs to answer a heartbeat. If the answer takes longer, the
// whole node is slow, and the heartbeat does not count against the call.
const promptAnswer = 250 * time.Millisecond

// A heartbeat is the last report of a process about its current call. The zero value is the
// state before the first report.
type heartbeat struct {
	call     string
	ran      time.Duration
	progress uint64
	stuck    int // number of heartbeats that found the call without progress
}

// next returns the heartbeat after a report that arrived after the time took. If the call hangs, why is the reason,
// otherwise "". If a dataplane never reports progress, only an overdue call counts as hung.
func (h heartbeat) next(v wire.Vitals, took time.Duration) (after heartbeat, why string) {
	if v.Overdue >= overdueLimit {
		return h, fmt.Sprintf("%s has not returned %s after its deadline", v.Call, v.Overdue.Round(time.Second))
	}
	after = heartbeat{call: v.Call, ran: v.CallFor, progress: v.Progress}
	same := v.Call == h.call && v.CallFor > h.ran && v.Progress == h.progress
	if v.Call == "" || v.Progress == 0 || v.Waiting != "" || !same {
		return after, ""
	}
	after.stuck = h.stuck
	if took <= promptAnswer {
		after.stuck++
	}
	if after.stuck < stuckBeats {
		return after, ""
	}
	return after, fmt.Sprintf("%s makes no progress: it has run for %s, and waits for nothing", v.Call, v.CallFor.Round(time.Second))
}
