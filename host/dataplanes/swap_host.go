// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
)

// A swapHost is the set as a swap sees it (swap.Host).
type swapHost struct{ *Set }

// Open has To's process started, and makes the canary, of which that is told like of any
// Service. One that still drains is wanted back: it goes on draining until it is Active, so
// that it keeps, and counts, the connections that it has.
func (set swapHost) Open(ctx context.Context, p swap.Plan) (swap.Dataplane, error) {
	if err := set.canary.begin(); err != nil {
		return nil, err // nothing could be proved later, and who leaves would have left by then
	}
	for _, d := range set.all() {
		if d.name == p.To && d != set.serving() {
			d.refill()
			return d, nil
		}
	}
	d := set.newDataplane(p.To, p.ToSlot)
	d.succeeds = p.Same
	d.want = firstRole(p)
	set.add(d)
	set.mu.Lock()
	life := set.life
	set.mu.Unlock()
	d.start(life)
	if err := d.comeUp(ctx); err != nil {
		d.Stop()
		set.dropped(d)
		return nil, err
	}
	return d, nil
}

// firstRole is the role that To is given before it is told anything; zero: it keeps the
// one that the kernel shows. In Standby it catches no packet, so whatever its mode has in
// the kernel no longer serves: that is right only where From does. Within one mode the role
// goes over with the writer's lock, unless both can serve at a time.
func firstRole(p swap.Plan) sdk.Role {
	if p.FromDown || p.Same && !p.Overlap {
		return 0
	}
	return sdk.Standby
}

// otherSlot is that of a second process of one mode.
func otherSlot(slot string) string {
	if slot == "" {
		return "b"
	}
	return ""
}

// comeUp waits until it is in session, or has failed to be.
func (p *dataplane) comeUp(ctx context.Context) error {
	var failed error
	err := p.until(ctx, "is up", func() bool {
		switch s := p.supervisor.Status(); s.State {
		case supervise.Waiting, supervise.Refused, supervise.Quarantined:
			failed = fmt.Errorf("%s is %s: %s", p.name, s.State, s.Why)
		}
		return p.remote != nil || failed != nil
	})
	return errors.Join(err, failed)
}

// Check says what would be lost: Services that are served now, and that the one to
// come has said it cannot serve; or what else the node has from the one to leave.
func (set swapHost) Check(ctx context.Context, p swap.Plan) error {
	var next *dataplane
	for _, d := range set.all() {
		if d.name == p.To && d != set.serving() {
			next = d
		}
	}
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
	lost := losses(main.status(), next.status())
	if len(lost) == 0 || p.Force {
		return nil
	}
	return fmt.Errorf("%s would not be served any more: %s%s; to do it all the same: pointsman mode swap %s --force",
		phrase.Count(len(lost), "Service"), lost[0], phrase.AndMore(len(lost)-1), p.To)
}

// Freeze lets no change of Services in.
func (set swapHost) Freeze() (thaw func()) { return set.Tracker.Freeze() }

// ProbeCanary finds the ways to the canary that lead somewhere.
func (set swapHost) ProbeCanary(ctx context.Context) []string { return set.canary.sound(ctx) }

// Prove holds the ways to leading there still, but for those that to has said it does
// not serve. A node that has no network has no way to lead packets by.
func (set swapHost) Prove(ctx context.Context, to swap.Dataplane, ways []string) error {
	next, ok := to.(*dataplane)
	if !ok {
		return errNoProcess
	}
	err := fmt.Errorf("this node has no address but its own loopback's: %w", errUnproved)
	if !set.canary.addr.IsLoopback() {
		err = set.canary.prove(ctx, ways, next.fails())
	}
	if errors.Is(err, errUnproved) {
		set.failed(swap.Prove, err)
		return nil
	}
	return err
}

// coming is the dataplane besides the one that serves.
func (set *Set) coming() *dataplane {
	set.mu.Lock()
	defer set.mu.Unlock()
	for _, p := range set.members {
		if p != set.main {
			return p
		}
	}
	return nil
}

// Serves makes d the dataplane that the host speaks of, and forgets those that
// have ended.
func (set swapHost) Serves(d swap.Dataplane) {
	p, ok := d.(*dataplane)
	if !ok {
		return
	}
	set.mu.Lock()
	set.main = p
	set.members = slices.DeleteFunc(set.members, func(o *dataplane) bool { return o != p && o.over() })
	set.mu.Unlock()
	set.note(p)
}

// Moved reports each change of stage.
func (set swapHost) Moved(before, now swap.Machine) {
	if now.Stage == swap.Idle {
		set.canary.end() // before another swap can begin, which would take this one's for its own
		set.settled(now.Last)
		return
	}
	e := report.Event{Reason: report.SwapStage, Object: now.Plan.To, Message: fmt.Sprintf("%s: %s", now.Plan, now.Stage)}
	if now.Undo != "" && before.Undo == "" {
		e.Warning, e.Message = true, e.Message+", to undo it: "+now.Undo
	}
	set.Reports.Report(e)
}

// settled reports how a swap ended.
func (set *Set) settled(o swap.Outcome) {
	set.remember(o)
	set.noteLeft(o)
	now := time.Now()
	set.mu.Lock()
	set.retry = set.retry.after(o, now)
	again := set.retry
	set.mu.Unlock()
	e := report.Event{Reason: report.SwapDone, Object: o.Plan.To, Message: fmt.Sprintf("%s in %s", o.Plan, phrase.Round(o.Took))}
	if o.Err != "" {
		e.Reason, e.Warning = report.SwapUndone, true
		e.Message = undone(o, set.serving().serves())
	}
	if again.to != "" {
		e.Message += fmt.Sprintf("; it is tried again in %s", phrase.Round(again.at.Sub(now)))
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
	case o.Stays == o.Plan.To:
		return fmt.Sprintf("%s failed, and %s stays because %s could not be brought back: %s", o.Plan, o.Plan.To, o.Plan.From, o.Err)
	case serves:
		return fmt.Sprintf("%s, and %s serves on: %s", o.Plan, o.Stays, o.Err)
	}
	return fmt.Sprintf("%s was undone, and %s does not serve either: %s; what the kernel has stays as it is, and nothing updates it", o.Plan, o.Stays, o.Err)
}

// Failed reports an action that failed without ending the swap.
func (set swapHost) Failed(a swap.Action, err error) { set.failed(a, err) }

func (set *Set) failed(a swap.Action, err error) {
	set.Reports.Report(report.Event{Warning: true, Reason: report.SwapNote, Message: fmt.Sprintf("%s: %v", a, err)})
}

var _ swap.Host = swapHost{}
var _ swap.Dataplane = (*dataplane)(nil)
