// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// inForce is what a host writes down of the mode, for the next one: what the kernel
// has decides with which dataplane it begins, not what the file says by then.
type inForce struct {
	Serving string `json:"serving"`         // the mode that serves
	Slot    string `json:"slot,omitempty"`  // of its process
	Asked   string `json:"asked,omitempty"` // by pointsman mode swap; empty: nobody asked for another than the file
	File    string `json:"file,omitempty"`  // the mode in the file when that was asked for

	// Left are the modes that do not serve and may have rules in the kernel, because a
	// swap ended without cleaning up after them.
	Left []string `json:"left,omitempty"`
}

func (f inForce) equal(o inForce) bool {
	return f.Serving == o.Serving && f.Slot == o.Slot && f.Asked == o.Asked && f.File == o.File && slices.Equal(f.Left, o.Left)
}

func inForceFile(stateDir string) string { return filepath.Join(stateDir, "mode.json") }

// readInForce is what was written; the zero value, and why, if it cannot be used.
func readInForce(stateDir string) (f inForce, err error) {
	data, err := statefile.Read(inForceFile(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return inForce{}, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil && !f.named() {
		err = errors.New("it has names that no mode can have")
	}
	if err != nil {
		return inForce{}, fmt.Errorf("read which mode serves: %s: %w", inForceFile(stateDir), err)
	}
	return f, nil
}

// named reports whether its modes and its process may be called so: their names lead to
// files.
func (f inForce) named() bool {
	for _, mode := range append([]string{f.Serving, f.Asked, f.File}, f.Left...) {
		if mode != "" && !supervise.ValidName(mode) {
			return false
		}
	}
	return supervise.ValidSlot(f.Slot)
}

func (f inForce) write(stateDir string) error {
	data, err := json.Marshal(f)
	if err == nil {
		err = statefile.Write(inForceFile(stateDir), data)
	}
	if err != nil {
		return fmt.Errorf("write down the mode: %w", err)
	}
	return nil
}

// wanted is the mode to serve with when the file says mode. What was asked for
// holds until the file says something else than it did then.
func (f inForce) wanted(mode string) string {
	if f.Asked != "" && f.File == mode {
		return f.Asked
	}
	return mode
}

// under is what is left of it when the file says mode: who asked for another mode before
// the file changed is not heard again when the file changes back.
func (f inForce) under(mode string) inForce {
	if f.File != mode {
		f.Asked, f.File = "", ""
	}
	return f
}

// serving is the mode to begin with, and the slot of its process: the one that
// served before, as long as it has a binary.
func (f inForce) serving(mode string, there func(string) bool) (serve, slot string) {
	if f.Serving != "" && there(f.Serving) {
		return f.Serving, f.Slot
	}
	return f.wanted(mode), ""
}

// heed lets the file's mode take the place of what was asked for before it changed.
func (set *Set) heed(mode string) {
	set.write(func(f *inForce) { *f = f.under(mode) })
}
