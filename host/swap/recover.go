// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"time"

	"github.com/pointsman/pointsman/host/supervise"
)

// A Saved is a Machine as it is written down for the next host.
type Saved struct {
	Stage string    `json:"stage"`
	Plan  Plan      `json:"plan"`
	Began time.Time `json:"began"`
	Undo  string    `json:"undo,omitempty"`
	Back  bool      `json:"back,omitempty"`
}

// Saved returns what of m is written down; nil: m is Idle, and there is nothing to go on with.
func (m Machine) Saved() *Saved {
	if m.Stage == Idle {
		return nil
	}
	return &Saved{m.Stage.String(), m.Plan, m.Began.Round(0), m.Undo, m.Back} // without the reading of this process's clock
}

// Machine returns the swap that was written down. Of nil it is Idle.
func (s *Saved) Machine() (Machine, error) {
	if s == nil {
		return Machine{}, nil
	}
	stage, err := ParseStage(s.Stage)
	if err != nil || !s.Plan.named() {
		return Machine{}, fmt.Errorf("it makes no sense: stage %q from %q to %q", s.Stage, s.Plan.From, s.Plan.To)
	}
	return Machine{Stage: stage, Plan: s.Plan, Began: s.Began, Undo: s.Undo, Back: s.Back}, nil
}

// named reports whether the modes and processes of a plan may be called so: their names
// lead to files.
func (p Plan) named() bool {
	return supervise.ValidName(p.From) && supervise.ValidName(p.To) && supervise.ValidSlot(p.FromSlot) && supervise.ValidSlot(p.ToSlot)
}

// Recover returns the swap that a host which was killed had under way, by what it had
// written down: finished if the canary had passed, else undone. Where traffic
// may have been switched it is switched back.
func Recover(m Machine, now time.Time) (Machine, []Action) {
	const killed = "the host ended in the middle of it"
	switch {
	case m.Stage == Idle:
		return m, nil
	case m.Plan.Leftover && m.Stage < Draining:
		return m.rest(now, killed) // To serves already; the next attempt begins anew
	case m.Stage.cut() && !m.Plan.FromDown:
		m.Undo = killed
		return m.enter(Returning, now)
	case m.Stage < Draining:
		m.Undo = killed
		return m.reversed().enter(Draining, now)
	case m.Stage == Clearing:
		// To may not have come up yet. Until it serves From only drains, and can be
		// wanted back.
		return m.enter(Draining, now)
	}
	return m.enter(m.Stage, now)
}

// A Party is one process of a mode.
type Party struct{ Mode, Slot string }

// Parties returns those of a swap that a host finds written down: the one that it is to
// serve with, and the one that is to leave.
func (m Machine) Parties() (keeps, leaves Party) {
	from, to := Party{m.Plan.From, m.Plan.FromSlot}, Party{m.Plan.To, m.Plan.ToSlot}
	if m.keepsTo() {
		return to, from
	}
	return from, to
}

func (m Machine) keepsTo() bool {
	return m.Plan.Leftover || m.Stage >= Draining && m.Stage != Returning
}
