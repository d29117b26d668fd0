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

// stillBeats is the number of consecutive heartbeats, one per second, that must find a call
// without progress. With the first heartbeat that saw the call, a hang is detected within five
// seconds.
const stillBeats = 4

// promptly is the longest time in which an idle process answers a heartbeat. A later answer
// means that the whole node is slow, so it proves nothing about the call.
const promptly = 250 * time.Millisecond

// A heartbeat is the last report of a process about its current call. The zero value is the
// state before the first report.
type heartbeat struct {
	call     string
	ran      time.Duration
	progress uint64
	still    int // consecutive heartbeats that found the call without progress
}

// next returns the heartbeat after a report that took so long to arrive. why is the reason why
// the call hangs, or "". For a dataplane that never reports progress, only an overdue call
// counts as a hang.
func (h heartbeat) next(v wire.Vitals, took time.Duration) (after heartbeat, why string) {
	if v.Overdue >= overdueLimit {
		return h, fmt.Sprintf("%s has not returned %s after its deadline", v.Call, v.Overdue.Round(time.Second))
	}
	after = heartbeat{call: v.Call, ran: v.CallFor, progress: v.Progress}
	same := v.Call == h.call && v.CallFor > h.ran && v.Progress == h.progress
	if v.Call == "" || v.Progress == 0 || v.Waiting != "" || !same {
		return after, ""
	}
	after.still = h.still
	if took <= promptly {
		after.still++
	}
	if after.still < stillBeats {
		return after, ""
	}
	return after, fmt.Sprintf("%s makes no progress: it has run for %s, and waits for nothing", v.Call, v.CallFor.Round(time.Second))
}
