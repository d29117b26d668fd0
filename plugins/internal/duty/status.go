// SPDX-License-Identifier: Apache-2.0

package duty

import (
	"slices"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// A Status is a report that is written by whoever has the turn, and read beside it.
type Status struct {
	mu     sync.Mutex // guards report
	report sdk.Report
}

// Report is the present state of it.
func (s *Status) Report() sdk.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	r.Samples = slices.Clone(r.Samples)
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
