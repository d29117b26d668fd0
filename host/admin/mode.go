// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"fmt"
	"time"
)

// A Mode is which dataplane serves, and what becomes of it.
type Mode struct {
	Meta
	Mode   string   `json:"mode"`            // that serves
	Wanted string   `json:"wanted"`          // that is to serve: the one asked for, or the file's
	File   string   `json:"file"`            // in the config file
	Auto   string   `json:"auto,omitempty"`  // where that is auto: since when it stands for which mode, and why
	Asked  string   `json:"asked,omitempty"` // by mode swap, instead of the file's
	Left   []string `json:"left,omitempty"`  // modes that do not serve and may have rules in the kernel
	Swap   *Swap    `json:"swap,omitempty"`  // under way
	Last   *Swapped `json:"last,omitempty"`
}

// A Swap is a change of mode that is under way.
type Swap struct {
	From  string    `json:"from"`
	To    string    `json:"to"`
	Why   string    `json:"why"`   // what asked for it: a user, or the config file
	Stage string    `json:"stage"` // preflight, staging, verifying, holding, cutting, proving, draining, clearing, returning
	Since time.Time `json:"since"` // of the stage
	Began time.Time `json:"began"`
	Undo  string    `json:"undo,omitempty"`  // why it is being undone
	Flows int       `json:"flows,omitempty"` // while draining: connections left
	Until time.Time `json:"until,omitzero"`  // while draining: when those left are cut
}

// Moved reports whether the mode that was asked for serves, and the canary passed.
func (s Swap) Moved() bool { return s.Undo == "" && (s.Stage == "draining" || s.Stage == "clearing") }

// A SwapAsk asks for a change of mode.
type SwapAsk struct {
	To     string // the mode
	Force  bool   // also if Services or connections are lost by it
	DryRun bool   // only find out whether it can be made, and hold nothing
}

// A Swapped is a change of mode that has ended.
type Swapped struct {
	From    string    `json:"from"`
	To      string    `json:"to"`
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	DryRun  bool      `json:"dryRun,omitempty"` // it was only to be found out whether it can be made
	Error   string    `json:"error,omitempty"`  // why it was undone
	Left    string    `json:"left,omitempty"`   // what could not be finished
	Stays   string    `json:"stays,omitempty"`  // the mode that the host goes on with
	Undone  bool      `json:"undone,omitempty"` // and with the process that it had before
	Again   time.Time `json:"again,omitzero"`   // when the host tries it again by itself; zero: it does not
}

// Retried says when the host tries it again by itself, to go after why it was undone; empty: it
// does not.
func (s Swapped) Retried(now time.Time) string {
	if s.Again.IsZero() {
		return ""
	}
	return fmt.Sprintf("; it is tried again in %s", max(0, s.Again.Sub(now)).Round(time.Second))
}
