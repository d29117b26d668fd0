// SPDX-License-Identifier: Apache-2.0

package duty

import (
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Status is a report that is written by whoever has the turn, and read beside it.
type Status struct {
	// Carries says that the process carries traffic too, so that what it works says
	// nothing of its calls.
	Carries bool

	mu     sync.Mutex // guards report
	report sdk.Report
}

// effort is so much use of the processor that a call gets on by it: planning for 10,000
// Services takes seconds on a busy node, and no step is done meanwhile. Answering the
// host takes a hundredth of it.
const effort = 50 * time.Millisecond

// Report is the present state of it. Its Progress are steps, and what the process has
// worked: rules are in the kernel, so all that it works for is its calls.
func (s *Status) Report() sdk.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	if !s.Carries {
		r.Progress += uint64(used() / effort)
	}
	r.Samples, r.Histograms = slices.Clone(r.Samples), slices.Clone(r.Histograms)
	return r
}

// Tell changes it.
func (s *Status) Tell(change func(*sdk.Report)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.report)
}

// Step says that the present call goes on.
func (s *Status) Step() { s.Tell(func(r *sdk.Report) { r.Progress++ }) }

// Waiting says what the present call waits for; nothing, if it is empty.
func (s *Status) Waiting(what string) { s.Tell(func(r *sdk.Report) { r.Waiting = what }) }
