// SPDX-License-Identifier: Apache-2.0

package supervise

import "time"

// A spell is what a question took that was not answered, and what the process did
// meanwhile: how long its threads ran, and how long they could have and got no processor.
type spell struct{ took, ran, queued time.Duration }

// excused reports whether a silence tells nothing of the process: it wanted to run and
// was hardly let, or we were not run ourselves when the answer was due. To kill who
// starves helps nobody. One that is stopped, or waits for what never comes, asks for no
// processor; and one that runs in circles has had it.
func (s spell) excused() bool {
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
