// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// A swapHost is the set as a swap sees it (swap.Host).
type swapHost struct{ *Set }

var _ swap.Host = swapHost{}

// Open has To's process started, and makes the canary, which that is sent like any
// Service. One that still drains is wanted back: it goes on draining until it is Active, so
// that it keeps, and counts, the connections that it has.
func (set swapHost) Open(ctx context.Context, p swap.Plan) (swap.Dataplane, error) {
	if main := set.serving(); main.name != p.From || main.slot != p.FromSlot {
		// The plan was made while the swap before it ended. To would take the rules away from a process of its mode.
		return nil, fmt.Errorf("%s serves by now, and the plan is from %s", main.name, p.From)
	}
	if err := set.canary.Begin(); err != nil {
		return nil, err // nothing could be proved later, and From would have left by then
	}
	if d := set.coming(p); d != nil {
		d.refill()
		return swapSide{d}, nil
	}
	d := set.newDataplane(p.To, p.ToSlot)
	d.succeeds = p.Same
	d.want = firstRole(p)
	set.join(d)
	if err := (swapSide{d}).comeUp(ctx); err != nil {
		set.retire(d)
		return nil, err
	}
	return swapSide{d}, nil
}

// coming returns To of a plan, where it runs; nil: it does not.
func (set swapHost) coming(p swap.Plan) *dataplane {
	for _, d := range set.all() {
		if d.name == p.To && d != set.serving() {
			return d
		}
	}
	return nil
}

// firstRole returns the role that To is given before it is sent anything; zero: it keeps the
// one that the kernel shows. In Standby it catches no packet, so whatever its mode has in
// the kernel no longer serves: that is right only where From does, and by another mode.
func firstRole(p swap.Plan) sdk.Role {
	if p.FromDown || p.Same {
		return 0
	}
	return sdk.Standby
}

// Check says what would be lost: Services that are served now, and that the one to
// come has said it cannot serve; or what else the node has from the one to leave.
func (set swapHost) Check(ctx context.Context, p swap.Plan) error {
	next := set.coming(p)
	if next == nil {
		return errNoProcess
	}
	if p.FromDown {
		return nil // what does not serve has nothing to lose
	}
	main := set.serving()
	if ends := next.ends(ctx); ends != "" && !p.Same && !p.Force {
		return fmt.Errorf("%s; or, to do it all the same: pointsman mode swap %s --force", ends, p.To)
	}
	if ends := main.ends(ctx); ends != "" && !p.Same && !p.Force {
		return fmt.Errorf("of %s %s; to do it all the same: pointsman mode swap %s --force", p.From, ends, p.To)
	}
	lost := losses(main.cursorStatus(), next.cursorStatus())
	if len(lost) == 0 || p.Force {
		return nil
	}
	return fmt.Errorf("%s would not be served any more: %s%s; to do it all the same: pointsman mode swap %s --force",
		phrase.Count(len(lost), "Service"), lost[0], phrase.AndMore(len(lost)-1), p.To)
}

// Freeze lets no change of Services in.
func (set swapHost) Freeze() (thaw func()) { return set.Tracker.Freeze() }

// ProbeCanary finds the ways to the canary that lead somewhere.
func (set swapHost) ProbeCanary(ctx context.Context) []string { return set.canary.Probe(ctx) }

// Prove demands that the ways lead there still, but for those that to has said it does
// not serve.
func (set swapHost) Prove(ctx context.Context, to swap.Dataplane, ways []string) error {
	err := set.canary.Prove(ctx, ways, unservedNames(to.(swapSide).cursorStatus()))
	if errors.Is(err, canary.ErrUnproved) {
		set.failed(swap.Prove, err)
		return nil
	}
	return err
}

// Record writes down where a swap stands.
func (set swapHost) Record(m swap.Machine) error {
	return set.intent.Change(func(i intent.Intent) intent.Intent { return i.Record(m) })
}

// Serves makes d the dataplane that the host speaks of.
func (set swapHost) Serves(d swap.Dataplane) {
	set.lead(d.(swapSide).dataplane)
	set.changes.notify()
}

// Finished makes d the only dataplane, and reports how the swap ended.
func (set swapHost) Finished(d swap.Dataplane, last swap.Machine, o swap.Outcome) {
	set.canary.End()
	main, now := d.(swapSide).dataplane, time.Now()
	set.lead(main)
	set.drop(func(p *dataplane) bool { return p != main && p.process.over() })
	err := set.intent.Change(func(i intent.Intent) intent.Intent { return i.Ended(o, main.name, main.slot, now) })
	if err != nil {
		set.failed(swap.Finish, err)
	}
	set.reportEnd(o, now)
	set.changes.notify()
}

// Moved reports each change of stage.
func (set swapHost) Moved(before, now swap.Machine) {
	e := report.Event{Reason: report.SwapStage, Object: now.Plan.To, Message: fmt.Sprintf("%s: %s", now.Plan, now.Stage)}
	if now.Undo != "" && before.Undo == "" && now.Undo != swap.ByDryRun {
		e.Warning, e.Message = true, e.Message+", to undo it: "+now.Undo
	}
	set.Reports.Report(e)
	set.changes.notify()
}

func (set swapHost) reportEnd(o swap.Outcome, now time.Time) {
	e := report.Event{Reason: report.SwapDone, Object: o.Plan.To, Message: fmt.Sprintf("%s in %s", o.Plan, phrase.Round(o.Took))}
	switch {
	case o.Err == swap.ByDryRun:
		e.Reason, e.Message = report.SwapNote, fmt.Sprintf("%s: %s", o.Plan, o.Err)
	case o.Err != "":
		e.Reason, e.Warning = report.SwapUndone, true
		e.Message = undone(o, set.serving().serves())
	}
	if retry := set.intent.Intent().Retry(); retry.To == o.Plan.To && !o.Plan.Same {
		e.Message += fmt.Sprintf("; it is tried again in %s", phrase.Round(retry.At.Sub(now)))
	}
	set.Reports.Report(e)
	if o.Left != "" {
		set.Reports.Report(report.Event{Warning: true, Reason: report.SwapNote, Object: o.Plan.To, Message: "not finished: " + o.Left})
	}
}

// undone says how a swap that did not go well ended. serves is whether the dataplane that
// the host goes on with does.
func undone(o swap.Outcome, serves bool) string {
	switch {
	case o.Stays == o.Plan.To && !o.Undone:
		return fmt.Sprintf("%s failed, and %s stays because %s could not be brought back: %s", o.Plan, o.Plan.To, o.Plan.From, o.Err)
	case serves:
		return fmt.Sprintf("%s, and %s serves on: %s", o.Plan, o.Stays, o.Err)
	}
	return fmt.Sprintf("%s was undone, and %s does not serve either: %s; what the kernel has stays as it is, and nothing updates it", o.Plan, o.Stays, o.Err)
}

// Failed reports an action that failed without ending the swap.
func (set swapHost) Failed(a swap.Action, err error) { set.failed(a, err) }

// unservedNames returns the Services that a dataplane does not serve as they ask.
func unservedNames(s track.CursorStatus) map[sdk.Name]bool {
	names := make(map[sdk.Name]bool)
	for _, u := range unservedBy(s) {
		names[u.name] = true
	}
	return names
}

// losses returns the Services that now does serve and next does not, each with its why.
func losses(now, next track.CursorStatus) []string {
	already := unservedNames(now)
	var lost []string
	for _, u := range unservedBy(next) {
		if !already[u.name] && u.name.Namespace != canary.Namespace {
			lost = append(lost, u.name.String()+": "+u.why)
		}
	}
	slices.Sort(lost)
	return lost
}
