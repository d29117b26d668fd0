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

// unanswered is how long a call of Report took that was not answered, and what the process did
// meanwhile: how long its threads ran, and how long they could have and got no processor.
type unanswered struct{ took, ran, queued time.Duration }

// excused reports whether a missing answer says nothing of the process: it was ready to run
// and got hardly any processor, or the host itself was not run when the answer was due. To
// kill a process that starves is of no use. One that is stopped, or waits for what never
// comes, asks for no processor; and one in an endless loop has had it.
func (s unanswered) excused() bool {
	if s.took < answerLimit {
		return false // it was no deadline that ended the question
	}
	starved := s.queued >= s.took/2 && s.ran < s.took/4
	return starved || s.took >= answerLimit+tooLate
}

const (
	answerLimit = 2 * time.Second // for an answer to a beat, as package wire has it
	tooLate     = time.Second     // a deadline is noticed so much later only by one that was not run
)
