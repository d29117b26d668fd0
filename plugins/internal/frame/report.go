// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A status is the Report of a Dataplane. The holder of the semaphore changes it; Report reads it
// without the semaphore.
type status struct {
	relays bool // the process carries traffic, so its CPU time is no sign of progress

	mu     sync.Mutex // guards report and noted
	report sdk.Report
	noted  []string // the notes of Env.Note

	// Notes about kernel parameters, guarded by the semaphore.
	changed []string          // parameters that another program has changed
	unset   map[string]string // parameters that could not be set, by path
}

// effort is the CPU time that counts as a step of progress. On a busy node, planning for 10,000
// Services takes seconds without a step. Answering the host takes a hundredth of this time.
const effort = 50 * time.Millisecond

// Report returns the state of the dataplane and the progress of the present call. It does not wait
// for the call.
func (d *Dataplane[P]) Report() sdk.Report { return d.status.copy() }

// copy returns a copy of the report. If the process carries no traffic, it works only for calls,
// and its CPU time counts as progress.
func (s *status) copy() sdk.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	if !s.relays {
		r.Progress += uint64(cpuTime() / effort)
	}
	r.Samples, r.Histograms = slices.Clone(r.Samples), slices.Clone(r.Histograms)
	return r
}

// change changes the report.
func (s *status) change(f func(*sdk.Report)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.report)
}

// step records progress of the present call.
func (s *status) step() { s.change(func(r *sdk.Report) { r.Progress++ }) }

// publish updates the metrics and notes of the report.
func (d *Dataplane[P]) publish() {
	var now sdk.Report
	for _, f := range d.families {
		f.Tell(&now)
	}
	for of := range d.tracked() {
		d.rounds[of].tell(&now)
	}
	s := &d.status
	s.change(func(r *sdk.Report) {
		r.Samples, r.Histograms = now.Samples, now.Histograms
		r.Notes = slices.Concat(s.noted, s.changed, slices.Sorted(maps.Values(s.unset)), now.Notes)
	})
}
