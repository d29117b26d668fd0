// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"fmt"
	"time"
)

// A Mode is the serving mode, the desired mode, and the swap in progress.
type Mode struct {
	Meta
	Mode   string   `json:"mode"`            // the serving mode
	Wanted string   `json:"wanted"`          // the desired mode: the requested one, or the config file's
	File   string   `json:"file"`            // the config file's mode
	Auto   string   `json:"auto,omitempty"`  // if File is auto: the chosen mode, since when, and why
	Asked  string   `json:"asked,omitempty"` // the mode requested by mode swap, if it is not the file's
	Left   []string `json:"left,omitempty"`  // modes that do not serve and may have rules in the kernel
	Swap   *Swap    `json:"swap,omitempty"`  // in progress
	Last   *Swapped `json:"last,omitempty"`
}

// A Swap is a change of mode in progress.
type Swap struct {
	From  string    `json:"from"`
	To    string    `json:"to"`
	Why   string    `json:"why"`   // what requested it: a user or the config file
	Stage string    `json:"stage"` // preflight, staging, verifying, holding, cutting, proving, draining, clearing, returning
	Since time.Time `json:"since"` // since when it is in Stage
	Began time.Time `json:"began"`
	Undo  string    `json:"undo,omitempty"`  // why it is being undone
	Flows int       `json:"flows,omitempty"` // while draining: connections left
	Until time.Time `json:"until,omitzero"`  // while draining: when the remaining connections are cut
}

// Moved reports whether the requested mode serves and has been proved by the canary.
func (s Swap) Moved() bool { return s.Undo == "" && (s.Stage == "draining" || s.Stage == "clearing") }

// Leaves returns the mode that is being removed.
func (s Swap) Leaves() string {
	if s.Undo != "" {
		return s.To
	}
	return s.From
}

// Superseded is the Error of a swap that was undone because another mode was requested.
const Superseded = "another mode was requested"

// A SwapAsk requests a change of mode.
type SwapAsk struct {
	To     string // the mode
	Force  bool   // even if Services or connections are lost
	DryRun bool   // only find out whether it is possible; leave no request behind
}

// A Swapped is a finished change of mode.
type Swapped struct {
	From    string    `json:"from"`
	To      string    `json:"to"`
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	DryRun  bool      `json:"dryRun,omitempty"` // it was a dry run
	Error   string    `json:"error,omitempty"`  // why it was undone
	Left    string    `json:"left,omitempty"`   // what could not be finished
	Stays   string    `json:"stays,omitempty"`  // the mode that the host continues with
	Undone  bool      `json:"undone,omitempty"` // the host continues with its previous process
	Again   time.Time `json:"again,omitzero"`   // when the host will retry by itself; zero if it will not
}

// Retried returns text about the host's next retry, to append to the reason for the undo; empty
// if there is no retry.
func (s Swapped) Retried(now time.Time) string {
	if s.Again.IsZero() {
		return ""
	}
	return fmt.Sprintf("; it is tried again in %s", max(0, s.Again.Sub(now)).Round(time.Second))
}
