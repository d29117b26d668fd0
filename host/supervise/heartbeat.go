// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"fmt"
	"time"

	"github.com/pointsman/pointsman/sdk/wire"
)

// overdueLimit is how long a call may run on after its context has ended. The contract gives it one second; this is
// some more, for a busy node.
const overdueLimit = 3 * time.Second

// stillBeats is at how many heartbeats in a row, one a second, a call may be found without progress. With the
// heartbeat that saw it first a hang is found within five seconds.
const stillBeats = 4

// promptly is how soon a heartbeat is answered by a process that only waits in a call. A later answer means that the
// whole node is slow, and says nothing of the call.
const promptly = 250 * time.Millisecond

// A heartbeat is what a process last reported of the call that it is in. The zero heartbeat is that before the first
// report.
type heartbeat struct {
	call     string
	ran      time.Duration
	progress uint64
	still    int // heartbeats in a row that found the call without progress
}

// next returns the heartbeat after a report that took so long to arrive. why says that the call hangs; empty: it does
// not. Of a dataplane that never reports progress only a call that is overdue is known to hang.
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
