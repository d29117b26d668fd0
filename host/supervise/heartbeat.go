// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"fmt"
	"time"

	"github.com/pointsman/pointsman/sdk/wire"
)

// overdueLimit is how long a call may go on after its context has ended. The
// contract gives it one second; here is some more, for a busy node.
const overdueLimit = 3 * time.Second

// stillBeats is at how many beats in a row, one a second, a call may be found where it
// was. With the beat that saw it first a hang is found within five seconds.
const stillBeats = 4

// promptly is how soon a beat is answered by one that only waits in a call. What comes
// later means that the whole node is slow, and says nothing of the call.
const promptly = 250 * time.Millisecond

// A heartbeat is what a process reported each second of the call that it is in. The zero
// heartbeat is that before the first report.
type heartbeat struct {
	call     string
	ran      time.Duration
	progress uint64
	still    int // beats in a row that found the call where it was
}

// next returns the heartbeat after a beat that was answered in took. why says that the call
// hangs: it has not ended when it had to, or makes no progress although it waits for
// nothing. Of a dataplane that never reports progress only the former is known.
func (p heartbeat) next(v wire.Vitals, took time.Duration) (after heartbeat, why string) {
	if v.Overdue >= overdueLimit {
		return p, fmt.Sprintf("%s has not returned %s after its deadline", v.Call, v.Overdue.Round(time.Second))
	}
	after = heartbeat{call: v.Call, ran: v.CallFor, progress: v.Progress}
	same := v.Call == p.call && v.CallFor > p.ran && v.Progress == p.progress
	if v.Call == "" || v.Progress == 0 || v.Waiting != "" || !same {
		return after, ""
	}
	after.still = p.still
	if took <= promptly {
		after.still++
	}
	if after.still < stillBeats {
		return after, ""
	}
	return after, fmt.Sprintf("%s gets on no more: it has run for %s, and waits for nothing", v.Call, v.CallFor.Round(time.Second))
}
