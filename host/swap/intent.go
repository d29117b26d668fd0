// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// An intent is a Machine as it is written down.
type intent struct {
	Stage string    `json:"stage"`
	Plan  Plan      `json:"plan"`
	Began time.Time `json:"began"`
	Undo  string    `json:"undo,omitempty"`
	Back  bool      `json:"back,omitempty"`
}

// Remember reads what a host before wrote down of a swap. Without a file it is
// Idle.
func Remember(file string) (Machine, error) {
	data, err := statefile.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Machine{}, nil
	}
	if err != nil {
		return Machine{}, fmt.Errorf("read the swap that was under way: %w", err)
	}
	var i intent
	if err := json.Unmarshal(data, &i); err != nil {
		return Machine{}, fmt.Errorf("read the swap that was under way: %s: %w", file, err)
	}
	stage, err := ParseStage(i.Stage)
	if err != nil || !i.Plan.named() {
		return Machine{}, fmt.Errorf("read the swap that was under way: %s makes no sense: stage %q from %q to %q", file, i.Stage, i.Plan.From, i.Plan.To)
	}
	return Machine{Stage: stage, Plan: i.Plan, Began: i.Began, Undo: i.Undo, Back: i.Back}, nil
}

// write puts m on the disk. When it returns nil, m is there also after a crash of
// the machine; with an error, what was there before still is.
func write(file string, m Machine) error {
	data, err := json.Marshal(intent{m.Stage.String(), m.Plan, m.Began, m.Undo, m.Back})
	if err == nil {
		err = statefile.Write(file, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write down where the swap stands: %w", err)
	}
	return nil
}

// named reports whether the modes and processes of a plan may be called so: their names
// lead to files.
func (p Plan) named() bool {
	return supervise.ValidName(p.From) && supervise.ValidName(p.To) && supervise.ValidSlot(p.FromSlot) && supervise.ValidSlot(p.ToSlot)
}

// forget removes what was written.
func forget(file string) error {
	if err := statefile.Remove(file); err != nil {
		return fmt.Errorf("forget the swap: %w", err)
	}
	return nil
}
