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
