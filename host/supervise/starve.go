// SPDX-License-Identifier: Apache-2.0

package supervise

import "time"

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
