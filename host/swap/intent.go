// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
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
	data, err := os.ReadFile(file)
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
	if err != nil || i.Plan.From == "" || i.Plan.To == "" {
		return Machine{}, fmt.Errorf("read the swap that was under way: %s makes no sense: stage %q from %q to %q", file, i.Stage, i.Plan.From, i.Plan.To)
	}
	return Machine{Stage: stage, Plan: i.Plan, Began: i.Began, Undo: i.Undo, Back: i.Back}, nil
}

// write puts m on the disk. When it returns nil, m is there also after a crash of
// the machine; with an error, what was there before still is.
func write(file string, m Machine) error {
	data, err := json.Marshal(intent{m.Stage.String(), m.Plan, m.Began, m.Undo, m.Back})
	if err == nil {
		err = durably(file, data)
	}
	if err != nil {
		return fmt.Errorf("write down where the swap stands: %w", err)
	}
	return nil
}

func durably(file string, data []byte) error {
	next := file + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return settle(filepath.Dir(file))
}

// forget removes what was written.
func forget(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the swap: %w", err)
	}
	return settle(filepath.Dir(file))
}
