// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"log/slog"
	"sync/atomic"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// A status is what Report tells besides the relay's counts, and the log. It is written
// by calls, and read beside them.
type status struct {
	log      atomic.Pointer[slog.Logger]
	progress atomic.Uint64 // steps done
	repaired atomic.Uint64 // how often another program's change of rules was undone
	waiting  atomic.Pointer[string]
	impact   atomic.Pointer[string] // what a change to us would end
	rounds   [2]*conntrack.Rounds   // of forgetting the kernel's UDP flows, by family
}

func newStatus() *status {
	s := new(status)
	s.log.Store(slog.New(slog.DiscardHandler))
	for _, f := range families {
		s.rounds[index(f)] = conntrack.NewRounds(f)
	}
	return s
}

// step says that the present call goes on.
func (s *status) step() { s.progress.Add(1) }

// report is the part of a report that is the status'.
func (s *status) report() sdk.Report {
	r := sdk.Report{Progress: s.progress.Load(), Repaired: s.repaired.Load()}
	if what := s.waiting.Load(); what != nil {
		r.Waiting = *what
	}
	if what := s.impact.Load(); what != nil {
		r.SwapImpact = *what
	}
	for _, rounds := range s.rounds {
		rounds.Tell(&r)
	}
	return r
}
