// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk"
)

// Plan has no notion of a swap. This file describes the steps of Plan as swaps, for status and events: which mode
// replaces which, and at which stage.

// A change is the replacement of one dataplane by another.
type change struct {
	From, To string // modes
	Same     bool   // the same mode with a new binary or new options
	DryRun   bool
}

func (c change) String() string {
	if c.Same {
		return c.From + " → " + c.To + ", another binary"
	}
	return c.From + " → " + c.To
}

// A progress describes a change in progress.
type progress struct {
	change
	stage string // preflight, staging, verifying, holding, cutting, proving, draining, clearing, returning
	undo  string // why it is being undone; empty if it is not

	why          string // what requested it
	began, since time.Time
}

// moved reports whether To has been proved to serve.
func (s *progress) moved() bool {
	return s.undo == "" && (s.stage == "draining" || s.stage == "clearing")
}

// A result describes how a change ended.
type result struct {
	change
	at     time.Time // zero if there was no change
	took   time.Duration
	err    string // why it was undone; empty if it succeeded
	left   string // what could not be cleaned up; empty if nothing
	stays  string // the mode that the host continues with
	undone bool   // the host continues with its previous process
}

// Reasons for undoing a swap that is no longer wanted.
const (
	byReset = "pointsman mode reset"
	byOther = admin.Superseded
)

// currentChange returns the change in progress while w is wanted, and its stage; nil if there
// is none. The caller holds the mutex.
func (r *reconciler) currentChange(w plane.Want, now time.Time) *progress {
	f := r.state.Facts
	from := f.Served
	if other := r.instance(func(i plane.Instance) bool { return i.Mode != w.Mode }); from == "" && other != nil {
		from = other.Mode // although it does not serve
	}
	switch refused := r.state.Refused(w, now); {
	case from == "":
		return nil
	case refused != nil:
		if s := r.undoing(w, refused); s != nil {
			return s
		}
		return r.removal()
	case w.Mode != f.Served:
		to := r.instance(func(i plane.Instance) bool { return i.Mode == w.Mode && i.Build == w.Build && !i.Clearing })
		return &progress{change: change{From: from, To: w.Mode, DryRun: w.DryRun}, stage: r.stageOfNext(to)}
	}
	if s := r.replacement(w); s != nil {
		return s
	}
	if s := r.swap; s != nil && s.To != f.Served && s.From == f.Served { // the swap is no longer wanted
		if to := r.instance(func(i plane.Instance) bool { return i.Mode == s.To }); to != nil {
			return &progress{change: s.change, stage: r.stageOfFormer(to), undo: cmp.Or(s.undo, r.dropped, byOther)}
		}
	}
	return r.removal()
}

// instance returns an instance for which is returns true, or nil. The caller holds the mutex.
func (r *reconciler) instance(is func(plane.Instance) bool) *plane.Instance {
	for _, i := range r.state.Have {
		if is(i) {
			return &i
		}
	}
	return nil
}

// stageOfNext returns the stage of the instance that should serve; nil means that it is not
// started yet. The caller holds the mutex.
func (r *reconciler) stageOfNext(to *plane.Instance) string {
	switch {
	case to == nil:
		return "preflight"
	case r.planes[to.ID] != nil && r.planes[to.ID].phase != "":
		return r.planes[to.ID].phase
	case !to.Up:
		return "preflight"
	case to.Role == sdk.Active:
		return "proving"
	case !to.Synced:
		return "staging"
	}
	return "verifying"
}

// stageOfFormer returns the stage of an instance that is being removed. The caller holds the
// mutex.
func (r *reconciler) stageOfFormer(i *plane.Instance) string {
	switch {
	case i.Clearing, i.Doing == plane.Stop, i.New:
		return "clearing"
	case i.Role == sdk.Active:
		return "returning"
	}
	return "draining"
}

// undoing returns the refused change until nothing of it is left, and then nil. The caller
// holds the mutex.
func (r *reconciler) undoing(w plane.Want, refused *plane.Refusal) *progress {
	to := r.instance(func(i plane.Instance) bool { return i.Mode == refused.Mode && i.Build == refused.Build })
	s := &progress{change: change{From: r.state.Facts.Served, To: refused.Mode, Same: refused.Mode == r.state.Facts.Served, DryRun: w.DryRun}, undo: refused.Why}
	back := r.instance(func(i plane.Instance) bool {
		return i.Mode == refused.Mode && i.Build == refused.Former && i.Up && i.Role == sdk.Active
	})
	switch {
	case s.Same && back == nil:
		s.stage = "returning"
	case to == nil:
		return nil
	default:
		s.stage = r.stageOfFormer(to)
	}
	return s
}

// replacement returns the change of the serving mode to another build, or nil. The caller holds
// the mutex.
func (r *reconciler) replacement(w plane.Want) *progress {
	ofMode := func(i plane.Instance) bool { return i.Mode == w.Mode && !i.External }
	to := r.instance(func(i plane.Instance) bool { return ofMode(i) && i.Build == w.Build })
	former := r.instance(func(i plane.Instance) bool { return ofMode(i) && i.Build != w.Build })
	if former == nil && (to == nil || to.Former == "") {
		return nil
	}
	s := &progress{change: change{From: w.Mode, To: w.Mode, Same: true, DryRun: w.DryRun}}
	switch {
	case former == nil:
		s.stage = "proving"
	case former.Role == sdk.Yielded && to != nil && to.Role == sdk.Active && to.Former == "":
		s.stage = "draining"
	case former.Doing == plane.Stop && to != nil && to.Role == sdk.Active:
		s.stage = "clearing"
	default:
		s.stage = r.stageOfNext(to)
	}
	return s
}

// removal returns the change by which a mode is drained and cleaned up, or nil. If there are
// several, that is the swap in progress and not what an earlier swap left. The caller holds the
// mutex.
func (r *reconciler) removal() *progress {
	served := r.state.Facts.Served
	leaves := func(i plane.Instance) bool { return i.Mode != served && !i.New }
	from := r.instance(func(i plane.Instance) bool { return leaves(i) && r.swap != nil && i.Mode == r.swap.From })
	if from == nil {
		from = r.instance(leaves)
	}
	if from == nil {
		return nil
	}
	s := &progress{change: change{From: from.Mode, To: served}, stage: r.stageOfFormer(from)}
	if main := r.instance(func(i plane.Instance) bool { return i.Mode == served }); main != nil && main.Proved == plane.Unknown && from.Role != sdk.Draining {
		s.stage = "proving"
	}
	return s
}

// updateSwap updates the change in progress while w is wanted, and returns the events of that.
// The caller holds the mutex.
func (r *reconciler) updateSwap(w plane.Want, now time.Time) (events []report.Event) {
	next, before := r.currentChange(w, now), r.swap
	if before != nil && (next == nil || next.change != before.change || before.undo != "" && next.undo == "") {
		events = append(events, r.finish(*before, w, now)...)
		before = nil
	}
	if r.swap = next; next == nil {
		if isLeft := func(mode string) bool { return r.startable[mode] }; len(r.state.Have) <= 1 && !slices.ContainsFunc(r.state.Facts.Left, isLeft) {
			r.canary.End()
		}
		return events
	}
	if before == nil {
		next.why, next.began, next.since = r.why(next.change), now, now
		r.dropped = ""
	} else {
		next.why, next.began, next.since = before.why, before.began, before.since
		if next.stage == before.stage && next.undo == before.undo {
			return events
		}
		if next.stage != before.stage {
			next.since = now
		}
	}
	e := report.Event{Reason: report.SwapStage, Object: next.To, Message: fmt.Sprintf("%s: %s", next.change, next.stage)}
	if next.undo != "" && (before == nil || before.undo == "") && next.undo != plane.ByDryRun {
		e.Warning, e.Message = true, e.Message+", being undone: "+next.undo
	}
	return append(events, e)
}

// why returns what requested a change. The caller holds the mutex.
func (r *reconciler) why(c change) string {
	switch {
	case c.To == r.state.Facts.Served && !c.Same:
		return "an earlier swap left rules of " + c.From
	case c.Same:
		return cmp.Or(r.builds[c.To].why, "its options in the config file")
	case c.DryRun, r.state.Facts.Asked != "":
		return "pointsman mode swap"
	}
	return "the mode in the config file"
}

// finish records the result of a change, and returns its events. The caller holds the mutex.
func (r *reconciler) finish(s progress, w plane.Want, now time.Time) []report.Event {
	f := r.state.Facts
	o := result{change: s.change, at: now, took: now.Sub(s.began), err: s.undo, stays: f.Served}
	if o.err == "" && !s.Same && f.Served != s.To {
		o.err = cmp.Or(r.dropped, byOther)
	}
	if s.Same && o.err == "" && f.Refused.Refuses(w) && f.Refused.Mode == s.To {
		o.err = f.Refused.Why
	}
	o.undone = o.err != "" && (s.Same || f.Served == s.From)
	r.last = o
	switch {
	case s.Same || s.DryRun:
	case o.err != "":
		r.undone = o
	case s.To == f.Wanted(r.fileMode):
		r.undone = result{}
	}
	if s.DryRun {
		r.dryRun = nil
		if f.Refused != nil && f.Refused.Number >= dryRuns {
			r.state.Facts.Refused = nil
		}
		if o.err == "" {
			o.err = plane.ByDryRun
		}
	}
	return []report.Event{r.endEvent(o, now)}
}

// endEvent returns the event for the end of a change. The caller holds the mutex.
func (r *reconciler) endEvent(o result, now time.Time) report.Event {
	e := report.Event{Reason: report.SwapDone, Object: o.To, Message: fmt.Sprintf("%s in %s", o.change, phrase.Round(o.took))}
	switch {
	case o.err == plane.ByDryRun:
		e.Reason, e.Message = report.SwapNote, fmt.Sprintf("%s: %s", o.change, o.err)
	case o.err != "":
		main := r.instance(func(i plane.Instance) bool { return i.Mode == o.stays && i.Served })
		e.Reason, e.Warning, e.Message = report.SwapUndone, true, undone(o, main != nil)
	}
	if again := r.retryAt(o); !again.IsZero() {
		e.Message += fmt.Sprintf("; it is tried again in %s", phrase.Round(max(0, again.Sub(now))))
	}
	return e
}

// undone describes a change that failed. serves tells whether the mode that the host continues
// with serves.
func undone(o result, serves bool) string {
	switch {
	case o.stays == o.To && !o.undone:
		return fmt.Sprintf("%s failed, and %s stays because %s could not become active again: %s", o.change, o.To, o.From, o.err)
	case serves:
		return fmt.Sprintf("%s was undone, and %s continues to serve: %s", o.change, o.stays, o.err)
	}
	return fmt.Sprintf("%s was undone, and %s does not serve either: %s; the kernel keeps its rules, and nothing updates them", o.change, o.stays, o.err)
}

// retryAt returns when an undone change will be retried; zero if it will not. The caller holds
// the mutex.
func (r *reconciler) retryAt(o result) time.Time {
	refused := r.state.Facts.Refused
	if refused == nil || o.err == "" || refused.Mode != o.To || refused.Number != r.state.Facts.Number || refused.Build != r.builds[o.To].label {
		return time.Time{}
	}
	return refused.Next
}

// reportAll reports events. The caller must not hold the mutex.
func (r *reconciler) reportAll(events []report.Event) {
	for _, e := range events {
		r.Reports.Report(e)
	}
}

// shownResult returns a result as status shows it; nil if there was no change. The caller holds
// the mutex.
func (r *reconciler) shownResult(o result) *admin.Swapped {
	if o.at.IsZero() {
		return nil
	}
	s := &admin.Swapped{From: o.From, To: o.To, At: o.at, Seconds: o.took.Seconds(), Error: phrase.OneLine(o.err), Left: phrase.OneLine(o.left), Stays: o.stays, Undone: o.undone, DryRun: o.DryRun}
	if o.err == plane.ByDryRun {
		s.Error = ""
	}
	if r.swap == nil { // otherwise the retry, or another swap, is in progress
		s.Again = r.retryAt(o)
	}
	return s
}
