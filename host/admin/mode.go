// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A Mode is which dataplane serves, and what becomes of it.
type Mode struct {
	Meta
	Mode  string   `json:"mode"`            // that serves
	File  string   `json:"file"`            // in the config file
	Asked string   `json:"asked,omitempty"` // by mode swap, instead of the file's
	Swap  *Swap    `json:"swap,omitempty"`  // under way
	Last  *Swapped `json:"last,omitempty"`
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

// A Swapped is a change of mode that has ended.
type Swapped struct {
	From    string    `json:"from"`
	To      string    `json:"to"`
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Error   string    `json:"error,omitempty"` // why it was undone
	Left    string    `json:"left,omitempty"`  // what could not be finished
	Stays   string    `json:"stays,omitempty"` // the mode that the host goes on with
}

// A ModePlan is what a change of mode would come to.
type ModePlan struct {
	Meta
	From    string   `json:"from"`
	To      string   `json:"to"`
	Lost    []string `json:"lost"`    // what would not be served any more, or otherwise than now, and why
	Written []string `json:"written"` // what the one to come would make
	Left    []string `json:"left"`    // what the one to leave would take away, after its connections have ended
	Steps   []string `json:"steps"`
	Refused []string `json:"refused,omitempty"` // why it would not be made, as far as that is known before
}

// Modes are what a Server asks about the mode.
type Modes struct {
	Show  func() Mode
	Plan  func(ctx context.Context, to string) (ModePlan, error)
	Swap  func(to string, force bool) error
	Reset func() (string, error)
}

func (m Modes) routes(mux *http.ServeMux) {
	handle := func(pattern string, answer func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { reply(w, r, answer) })
	}
	handle("GET /v1/mode", func(*http.Request) (any, error) {
		mode := m.Show()
		mode.Meta = meta("Mode")
		return mode, nil
	})
	handle("GET /v1/mode/plan", func(r *http.Request) (any, error) {
		plan, err := m.Plan(r.Context(), r.URL.Query().Get("to"))
		plan.Meta = meta("ModePlan")
		return plan, err
	})
	handle("POST /v1/mode/swap", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		force, _ := strconv.ParseBool(q.Get("force"))
		return Done{meta("Done"), "the swap to " + q.Get("to") + " begins"}, m.Swap(q.Get("to"), force)
	})
	handle("POST /v1/mode/reset", func(*http.Request) (any, error) {
		text, err := m.Reset()
		return Done{meta("Done"), text}, err
	})
}

// Mode asks which dataplane serves.
func (c *Client) Mode(ctx context.Context) (m Mode, err error) {
	return m, c.get(ctx, "mode", &m)
}

// PlanMode asks what a change of mode would come to.
func (c *Client) PlanMode(ctx context.Context, to string) (p ModePlan, err error) {
	return p, c.get(ctx, "mode/plan?to="+url.QueryEscape(to), &p)
}

// SwapMode begins a change of mode.
func (c *Client) SwapMode(ctx context.Context, to string, force bool) (d Done, err error) {
	return d, c.post(ctx, "mode/swap?to="+url.QueryEscape(to)+"&force="+strconv.FormatBool(force), &d)
}

// ResetMode goes back to the mode of the config file.
func (c *Client) ResetMode(ctx context.Context) (d Done, err error) {
	return d, c.post(ctx, "mode/reset", &d)
}
