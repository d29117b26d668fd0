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
// later says that the whole node is slow, and tells nothing of the call.
const promptly = 250 * time.Millisecond

// A pulse is what the beats of a process tell of the call that it is in. The zero
// pulse has felt none.
type pulse struct {
	call     string
	ran      time.Duration
	progress uint64
	still    int // beats in a row that found the call where it was
}

// feel returns the pulse after a beat that was answered in took. why says that the call
// hangs: it has not ended when it had to, or gets on no more although it waits for
// nothing. Of a dataplane that never reports progress only the former is known.
func (p pulse) feel(v wire.Vitals, took time.Duration) (next pulse, why string) {
	if v.Overdue >= overdueLimit {
		return p, fmt.Sprintf("%s has not returned %s after its deadline", v.Call, v.Overdue.Round(time.Second))
	}
	next = pulse{call: v.Call, ran: v.CallFor, progress: v.Progress}
	same := v.Call == p.call && v.CallFor > p.ran && v.Progress == p.progress
	if v.Call == "" || v.Progress == 0 || v.Waiting != "" || !same {
		return next, ""
	}
	next.still = p.still
	if took <= promptly {
		next.still++
	}
	if next.still < stillBeats {
		return next, ""
	}
	return next, fmt.Sprintf("%s gets on no more: it has run for %s, and waits for nothing", v.Call, v.CallFor.Round(time.Second))
}
