// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// This file does the steps that Plan has planned. Each has a deadline, and says in which stage of a swap it is.

// limits are how long steps may take. Starting a process has shorter limits of its own, but for one that gets no
// processor; the kernel may be slow to list much.
var limits = map[plane.Verb]time.Duration{
	plane.Start: 45 * time.Second, plane.Verify: 3 * time.Minute, plane.Cut: 15 * time.Second, plane.Replace: 30 * time.Second,
	plane.Promote: 15 * time.Second, plane.Prove: 3 * time.Minute, plane.Drain: 15 * time.Second, plane.Cleanup: 3 * time.Minute, plane.Stop: time.Minute,
}

// maxHeld is how long updates may be held back in all.
const maxHeld = 4500 * time.Millisecond

// perform does a step. unwritten is why the facts could not be written down; nil: they were.
func (r *reconciler) perform(ctx context.Context, b task, unwritten error) {
	ctx, cancel := context.WithTimeout(ctx, limits[b.Do])
	defer cancel()
	r.mu.Lock()
	i, _ := r.state.Instance(b.On)
	needsProcess := b.Do != plane.Start && b.Do != plane.Stop && b.Do != plane.Cleanup
	if needsProcess {
		r.cancels[b.On] = cancel
	}
	if needsProcess && !i.Up {
		cancel() // it has ended already
	}
	r.mu.Unlock()
	var o plane.Outcome
	mustBeWritten := b.Do == plane.Start && i.New || b.Do == plane.Cut || b.Do == plane.Cleanup
	if mustBeWritten && unwritten != nil {
		o.Err = unwritten
	} else {
		o = r.act(ctx, b)
	}
	r.failedAgain(b, o.Err)
	r.end(b, o)
}

// failedAgain reports a step that failed and that nothing else tells of, once for each reason.
func (r *reconciler) failedAgain(b task, err error) {
	unfinished := b.Do == plane.Cleanup || b.Do == plane.Prove && r.servedMode() == b.on.name
	if !unfinished && b.Do != plane.Drain && b.Do != plane.Promote {
		return
	}
	about, why := b.Do.String()+" "+b.on.name, ""
	if err != nil {
		why = oneLine(err.Error())
	}
	r.mu.Lock()
	isNews := why != "" && r.failures[about] != why
	r.failures[about] = why
	if unfinished && err != nil {
		r.last = result{change: change{From: b.on.name, To: r.state.Facts.Served}, at: time.Now(), left: about + ": " + why, stays: r.state.Facts.Served}
		if r.swap != nil {
			r.last.change = r.swap.change
		}
	}
	r.mu.Unlock()
	if isNews {
		r.failed("not finished: "+about, err)
	}
}

// at notes the stage of the swap that the step of an instance has come to, and fails where tests have it fail.
func (r *reconciler) at(b task, stage, action string) error {
	r.mu.Lock()
	r.phases[b.On] = stage
	events := r.tell(r.want(), time.Now())
	r.mu.Unlock()
	r.reportAll(events)
	if err := plane.Fail(stage + "/" + action); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// A part is one part of a step, with the stage that it belongs to.
type part struct {
	stage, action string
	do            func(context.Context) error
}

// inTurn does parts of a step until one fails.
func (r *reconciler) inTurn(ctx context.Context, b task, parts ...part) error {
	for _, p := range parts {
		if err := r.at(b, p.stage, p.action); err != nil {
			return err
		}
		if err := p.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.action, err)
		}
	}
	return nil
}

func (r *reconciler) act(ctx context.Context, b task) plane.Outcome {
	switch b.Do {
	case plane.Start:
		return r.doStart(ctx, b)
	case plane.Verify:
		return r.doVerify(ctx, b)
	case plane.Cut:
		return plane.Outcome{Err: r.doCut(ctx, b)}
	case plane.Replace:
		return plane.Outcome{Err: r.doReplace(ctx, b)}
	case plane.Promote:
		return plane.Outcome{Err: b.on.setRole(ctx, sdk.Active)}
	case plane.Prove:
		return r.doProve(ctx, b)
	case plane.Drain:
		return plane.Outcome{Err: b.on.setRole(ctx, sdk.Draining)}
	case plane.Cleanup:
		return plane.Outcome{Err: r.inTurn(ctx, b, part{"clearing", "clear", b.on.Cleanup})}
	case plane.Stop:
		_ = r.at(b, "clearing", "stop")
		b.on.Stop()
	}
	return plane.Outcome{}
}

// doStart starts a process, or connects to one, and makes the canary where another process is to judge by it.
func (r *reconciler) doStart(ctx context.Context, b task) plane.Outcome {
	r.mu.Lock()
	alone := len(r.state.Have) == 1
	r.mu.Unlock()
	if !alone {
		if err := r.canary.Begin(); err != nil {
			return plane.Outcome{Err: err} // nothing could be proved later
		}
	}
	if err := r.at(b, "preflight", "launch"); err != nil {
		return plane.Outcome{Err: err}
	}
	options := b.on.currentOptions()
	if b.on.remote() != nil { // something else runs it
		options = r.Now().Plugins[b.on.name].Options
	}
	if err := b.on.open(ctx, b.Role, options); err != nil {
		return plane.Outcome{Err: fmt.Errorf("start %s: %w", b.on.name, err), Loss: b.on.lost(err, 0)}
	}
	o := b.on.started()
	o.Err = r.at(b, "staging", "record")
	return o
}

// doVerify finds out whether an instance can serve what is served now, and whether the kernel has what it was sent.
func (r *reconciler) doVerify(ctx context.Context, b task) plane.Outcome {
	r.mu.Lock()
	on, _ := r.state.Instance(b.On)
	r.mu.Unlock()
	serves := r.serving()
	verified := true
	verify := func(ctx context.Context) (err error) {
		if remote := b.on.remote(); on.Role == 0 && remote != nil { // the last heartbeat may be from before it read that
			if v, err := remote.Vitals(ctx); err == nil && v.Shown == sdk.Active {
				verified = false // it serves already, so that there is nothing to be careful of
				return nil
			}
		}
		if verified, err = b.on.verify(ctx); err == nil && !verified && serves != b.on {
			r.failed("verify", fmt.Errorf("%s cannot say what it serves: the swap goes on unverified", b.on.name))
		}
		return err
	}
	var parts []part
	switch {
	case on.Role == sdk.Active:
		parts = []part{{"proving", "verify", verify}}
	case serves == b.on: // no swap is under way
		if err := verify(ctx); err != nil {
			return plane.Outcome{Err: err, Answer: plane.No}
		}
	default:
		parts = []part{
			{"staging", "fill", func(context.Context) error { return nil }},
			{"verifying", "check", func(ctx context.Context) error { return r.check(ctx, b, serves) }},
			{"verifying", "verify", verify},
			{"verifying", "probe-canary", func(ctx context.Context) error { r.probe(ctx); return nil }},
		}
	}
	switch err := r.inTurn(ctx, b, parts...); {
	case err != nil:
		return plane.Outcome{Err: err, Answer: plane.No}
	case !verified:
		return plane.Outcome{Answer: plane.Cannot}
	}
	return plane.Outcome{Answer: plane.Yes}
}

// probe finds the ways to the canary that lead somewhere now.
func (r *reconciler) probe(ctx context.Context) {
	ways := r.canary.Probe(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ways = ways
}

// check says what would be lost by a swap: Services that are served now, and that the one to come has said it cannot
// serve; or what else the node has from the one to leave. What does not serve has nothing to lose.
func (r *reconciler) check(ctx context.Context, b task, from *dataplane) error {
	if from == b.on || from.name == b.on.name || b.want.Force || b.want.Mode != b.on.name || !from.serves() {
		return nil
	}
	if ends := b.on.ends(ctx); ends != "" {
		return fmt.Errorf("%s; or, to do it all the same: pointsman mode swap %s --force", ends, b.on.name)
	}
	if ends := from.ends(ctx); ends != "" {
		return fmt.Errorf("of %s %s; to do it all the same: pointsman mode swap %s --force", from.name, ends, b.on.name)
	}
	if held := taken(from.description(), b.on.description(), r.Tracker.All(), r.Interfaces); held != "" {
		return fmt.Errorf("%s, which %s would take: if that is NodeLocal DNS, have it listen at its link-local address alone; to do it all the same: pointsman mode swap %s --force", held, b.on.name, b.on.name)
	}
	lost := losses(from.cursorStatus(), b.on.cursorStatus())
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("%s would not be served any more: %s%s; to do it all the same: pointsman mode swap %s --force",
		phrase.Count(len(lost), "Service"), lost[0], phrase.AndMore(len(lost)-1), b.on.name)
}

// doCut makes an instance Active and lets the one that serves drain, while no update is under way and both have
// confirmed the same. If it fails they have the roles of before.
func (r *reconciler) doCut(ctx context.Context, b task) error {
	promote := func(ctx context.Context) error { return b.on.setRole(ctx, sdk.Active) }
	retire := func(ctx context.Context) error { return b.with.retire(ctx, sdk.Draining) }
	if b.undoes {
		return r.inTurn(ctx, b, part{"returning", "restore", promote}, part{"returning", "recall", retire})
	}
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(maxHeld))
	defer cancel()
	thaw := func() {}
	release := func() { b.on.Release(); b.with.Release(); thaw(); thaw = func() {} }
	defer release()
	tried, promoted := false, false
	err := r.inTurn(ctx, b,
		part{"holding", "record", func(context.Context) error { return nil }},
		part{"holding", "freeze", func(context.Context) error { thaw = r.Tracker.Freeze(); return nil }},
		part{"holding", "hold", func(ctx context.Context) error { return r.hold(ctx, b) }},
		part{"holding", "hand-over-affinity", func(ctx context.Context) error { r.handOverAffinity(ctx, b); return nil }},
		part{"cutting", "record", func(context.Context) error { return nil }},
		part{"cutting", "promote", func(ctx context.Context) (err error) {
			tried = true
			err = promote(ctx)
			promoted = err == nil
			return err
		}},
		part{"cutting", "retire", retire},
		part{"cutting", "release", func(context.Context) error { release(); return nil }},
	)
	if err != nil && time.Since(began) >= maxHeld-maxHeld/20 { // the error of a call may come a moment before its deadline
		err = fmt.Errorf("updates may be held back for %s at most: %w", maxHeld, err)
	}
	if err != nil && tried {
		release()
		if !r.goBack(b) && promoted {
			r.failed("retire", err)
			return nil
		}
	}
	return err
}

// goBack gives the one that served its role back, and then takes it from the other one, which drains. It returns false
// where the former cannot have it: then the latter goes on.
func (r *reconciler) goBack(b task) bool {
	ctx, cancel := context.WithTimeout(r.life, limits[plane.Cut])
	defer cancel()
	_ = r.at(b, "returning", "restore")
	if err := b.with.setRole(ctx, sdk.Active); err != nil {
		r.failed("return", err)
		return false
	}
	if err := b.on.setRole(ctx, sdk.Draining); err != nil {
		r.failed("return", err)
	}
	return true
}

// yieldBack is goBack for two processes of one mode, of which only one can have the lock.
func (r *reconciler) yieldBack(b task) bool {
	ctx, cancel := context.WithTimeout(r.life, limits[plane.Cut])
	defer cancel()
	_ = r.at(b, "returning", "recall")
	if err := b.on.setRole(ctx, sdk.Yielded); err != nil {
		r.failed("return", err)
	}
	err := b.with.setRole(ctx, sdk.Active)
	if err == nil {
		return true
	}
	r.failed("return", err)
	return b.on.setRole(ctx, sdk.Active) != nil
}

// hold waits for both sides to confirm what there is, and lets no update go to either; for the one that serves only for
// a while, because it may be the faulty one.
func (r *reconciler) hold(ctx context.Context, b task) error {
	if err := b.on.Hold(ctx); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, maxHeld/3)
	defer cancel()
	if err := b.with.Hold(short); err != nil {
		r.failed("hold", err)
	}
	return nil
}

// handOverAffinity hands client affinity over, as far as both can.
func (r *reconciler) handOverAffinity(ctx context.Context, b task) {
	entries, err := b.with.exportAffinity(ctx)
	if err == nil && len(entries) > 0 {
		err = b.on.importAffinity(ctx, entries)
	}
	if err != nil {
		r.failed("hand-over-affinity", err)
	}
}

// doReplace has an instance take the place of another of its mode. What is in the kernel is the hand-over; where
// connections go through the process, both serve until the former one has none left. If it fails the former one serves
// on.
func (r *reconciler) doReplace(ctx context.Context, b task) error {
	r.probe(ctx)
	promote := part{"cutting", "promote", func(ctx context.Context) error { return b.on.setRole(ctx, sdk.Active) }}
	nothing := func(context.Context) error { return nil }
	if dies := diesWithProcess(b.on.description()); !dies || b.with.remote() == nil {
		err := r.inTurn(ctx, b, part{"holding", "record", nothing}, part{"cutting", "record", nothing},
			part{"cutting", "stop", func(context.Context) error { b.with.Stop(); return nil }}, promote)
		if err != nil && b.with.isOver() {
			b.on.Stop() // which ends in that it is lost
			b.with.pin()
		}
		return err
	}
	moved := false
	err := r.inTurn(ctx, b, part{"holding", "record", nothing},
		part{"holding", "hand-over-affinity", func(ctx context.Context) error { r.handOverAffinity(ctx, b); return nil }},
		part{"cutting", "record", nothing},
		part{"cutting", "offer", b.on.tryActive}, // sockets can be shared, a lock cannot
		part{"cutting", "retire", func(ctx context.Context) error { moved = true; return b.with.retire(ctx, sdk.Yielded) }}, promote)
	if err != nil && moved && !r.yieldBack(b) {
		r.failed("retire", err)
		return nil
	}
	return err
}

// doProve demands that connections find their way by an instance.
func (r *reconciler) doProve(ctx context.Context, b task) plane.Outcome {
	if err := r.canary.Begin(); err != nil {
		return plane.Outcome{Err: err, Answer: plane.Unknown}
	}
	r.mu.Lock()
	ways := r.ways
	on, _ := r.state.Instance(b.On)
	r.mu.Unlock()
	answer := plane.Yes
	err := r.inTurn(ctx, b,
		part{"proving", "prove", func(ctx context.Context) error {
			r.awaitCanary(ctx, b.on)
			err := r.canary.Prove(ctx, ways, unservedNames(b.on.cursorStatus()))
			if errors.Is(err, canary.ErrUnproved) {
				r.failed("prove", err)
				answer, err = plane.Cannot, nil
			}
			return err
		}},
		part{"proving", "verify", func(ctx context.Context) error {
			if b.on.readyInStandby() || on.Former != "" { // that was verified, or is in a step of its own
				return nil
			}
			_, err := b.on.verify(ctx)
			return err
		}})
	if err != nil {
		return plane.Outcome{Err: err, Answer: plane.No}
	}
	return plane.Outcome{Answer: answer}
}

// awaitCanary waits until a dataplane has confirmed what there is, the canary among it; for a while, because what changes
// all the time need not be waited for.
func (r *reconciler) awaitCanary(ctx context.Context, d *dataplane) {
	ctx, cancel := context.WithTimeout(ctx, maxHeld)
	defer cancel()
	_ = d.until(ctx, "has confirmed the canary", d.caughtUp) // the proof shows
}

// servedMode returns the mode that serves, as far as that is certain.
func (r *reconciler) servedMode() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Facts.Served
}

// unservedNames returns the Services that a dataplane does not serve as they ask.
func unservedNames(s track.CursorStatus) map[sdk.Name]bool {
	names := make(map[sdk.Name]bool)
	for _, u := range unservedBy(s) {
		names[u.name] = true
	}
	return names
}

// taken returns a ClusterIP that an interface of this node has, as NodeLocal DNS gives itself that of the cluster's DNS, if a
// swap would take what is sent there from the process that listens; empty: none. A dataplane that serves at the node's own
// addresses listens there itself.
func taken(from, to sdk.Description, services iter.Seq[track.ServiceStatus], interfaces func() map[netip.Addr]string) string {
	takes := func(d sdk.Description) bool { return slices.Contains(d.Limits, sdk.LimitTakesAddresses) }
	if !takes(to) || takes(from) || slices.Contains(from.Limits, sdk.LimitOwnAddressesOnly) {
		return ""
	}
	ours := interfaces()
	for s := range services {
		for _, p := range s.Ports {
			for _, f := range p.Service.Frontends {
				if name := ours[f.Addr.Addr()]; f.Kind == sdk.ClusterIP && name != "" && s.Namespace != canary.Namespace {
					return fmt.Sprintf("interface %s has the ClusterIP %s of Service %s", name, f.Addr.Addr(), s.Key)
				}
			}
		}
	}
	return ""
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
	slices.SortFunc(lost, strings.Compare)
	return lost
}
