// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/services"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// This file runs the steps that Plan returns. Each step has a deadline and reports the stage of the swap that it has
// reached.

// limits are the deadlines of steps. The start of a process has shorter limits of its own; this
// one also covers a process that gets no CPU time. Listing large tables from the kernel may be
// slow.
var limits = map[plane.Verb]time.Duration{
	plane.Start: 45 * time.Second, plane.Verify: 3 * time.Minute, plane.Cut: 15 * time.Second, plane.Replace: 30 * time.Second,
	plane.Promote: 15 * time.Second, plane.Prove: 3 * time.Minute, plane.Drain: 15 * time.Second, plane.Cleanup: 3 * time.Minute, plane.Stop: time.Minute,
}

// maxHeld returns the longest time for which updates may be held back.
func (r *reconciler) maxHeld() time.Duration { return r.Now().Swap.HoldTimeout.Duration }

// runStep runs a step. unwritten is the error of writing the facts, or nil.
func (r *reconciler) runStep(ctx context.Context, b task, unwritten error) {
	limit := limits[b.Do]
	if b.Do == plane.Cut || b.Do == plane.Prove { // they hold updates back, and may have to undo that
		limit += r.maxHeld()
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r.mu.Lock()
	i, _ := r.state.Instance(b.On)
	needsProcess := b.Do != plane.Start && b.Do != plane.Stop && b.Do != plane.Cleanup
	if needsProcess {
		b.on.cancel = cancel
	}
	if needsProcess && !i.Up {
		cancel() // its process has ended already
	}
	r.mu.Unlock()
	var o plane.Outcome
	mustBeWritten := b.Do == plane.Start && i.New || b.Do == plane.Cut || b.Do == plane.Cleanup
	if mustBeWritten && unwritten != nil {
		o.Err = unwritten
	} else {
		o = r.runAction(ctx, b)
	}
	r.reportFailure(b, o.Err)
	r.end(b, o)
}

// reportFailure reports a failed step that has no other event, once for each error.
func (r *reconciler) reportFailure(b task, err error) {
	r.mu.Lock()
	served := r.state.Facts.Served
	unfinished := b.Do == plane.Cleanup || b.Do == plane.Prove && served == b.on.name
	about, why := b.Do.String()+" "+b.on.name, ""
	if err != nil && (unfinished || b.Do == plane.Drain || b.Do == plane.Promote) {
		why = phrase.OneLine(err.Error())
	}
	isNews := why != "" && r.failures[about] != why
	r.failures[about] = why
	if unfinished && err != nil {
		r.last = result{change: change{From: b.on.name, To: served}, at: time.Now(), left: about + ": " + why, stays: served}
		if r.swap != nil {
			r.last.change = r.swap.change
		}
	}
	r.mu.Unlock()
	if isNews {
		r.failed("not finished: "+about, err)
	}
}

// enterStage records the stage of a swap that a step has reached, and fails if a test injects a
// fault there.
func (r *reconciler) enterStage(b task, stage, action string) error {
	r.mu.Lock()
	b.on.phase = stage
	events := r.updateSwap(r.want(), time.Now())
	r.mu.Unlock()
	r.reportAll(events)
	if err := plane.Fail(stage + "/" + action); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// A part is an action of a step, with the stage of the swap it belongs to.
type part struct {
	stage, action string
	do            func(context.Context) error
}

// runParts runs the parts of a step until one fails.
func (r *reconciler) runParts(ctx context.Context, b task, parts ...part) error {
	for _, p := range parts {
		if err := r.enterStage(b, p.stage, p.action); err != nil {
			return err
		}
		if err := p.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.action, err)
		}
	}
	return nil
}

func (r *reconciler) runAction(ctx context.Context, b task) plane.Outcome {
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
		return plane.Outcome{Err: r.runParts(ctx, b, part{"clearing", "clear", b.on.Cleanup})}
	case plane.Stop:
		_ = r.enterStage(b, "clearing", "stop")
		b.on.Stop()
	}
	return plane.Outcome{}
}

// doStart starts a process or connects to one. If there is another instance, it also creates
// the canary, by which later steps judge.
func (r *reconciler) doStart(ctx context.Context, b task) plane.Outcome {
	r.mu.Lock()
	alone := len(r.state.Have) == 1
	r.mu.Unlock()
	if !alone {
		if err := r.canary.Begin(); err != nil {
			return plane.Outcome{Err: err} // without the canary nothing can be proved later
		}
	}
	if err := r.enterStage(b, "preflight", "launch"); err != nil {
		return plane.Outcome{Err: err}
	}
	options := b.on.currentOptions()
	if b.on.remote() != nil { // something else runs it
		options = r.Now().Plugins[b.on.name].Options
	}
	if err := b.on.open(ctx, b.Role, options); err != nil {
		return plane.Outcome{Err: fmt.Errorf("start %s: %w", b.on.name, err), Loss: b.on.lost(err, 0)}
	}
	return plane.Outcome{
		DiesWithProcess: diesWithProcess(b.on.description()), External: b.on.plugin.Address != "",
		Err: r.enterStage(b, "staging", "record"),
	}
}

// doVerify checks whether an instance can serve everything that is served now, and whether the
// kernel has what the instance was sent.
func (r *reconciler) doVerify(ctx context.Context, b task) plane.Outcome {
	r.mu.Lock()
	on, _ := r.state.Instance(b.On)
	r.mu.Unlock()
	serves := r.serving()
	verified := true
	verify := func(ctx context.Context) (err error) {
		if on.Role == 0 { // the last heartbeat may be older than the plugin's read of the kernel
			if v, err := b.on.vitals(ctx); err == nil && v.Shown == sdk.Active {
				verified = false // it serves already, so a swap risks nothing
				return nil
			}
		}
		if verified, err = b.on.verify(ctx); err == nil && !verified && serves != b.on {
			r.failed("verify", fmt.Errorf("%s cannot list what it serves: the swap continues without verification", b.on.name))
		}
		return err
	}
	var parts []part
	switch {
	case on.Role == sdk.Active:
		parts = []part{{"proving", "verify", verify}}
	case serves == b.on: // no swap is in progress
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
	switch err := r.runParts(ctx, b, parts...); {
	case err != nil:
		return plane.Outcome{Err: err, Answer: plane.No}
	case !verified:
		return plane.Outcome{Answer: plane.Cannot}
	}
	return plane.Outcome{Answer: plane.Yes}
}

// probe records which frontends reach the canary now.
func (r *reconciler) probe(ctx context.Context) {
	ways := r.canary.Probe(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ways = ways
}

// check returns an error if the swap would lose something: Services that only the current dataplane can serve, or other
// effects of the current dataplane. If the current dataplane does not serve, nothing can be lost.
func (r *reconciler) check(ctx context.Context, b task, from *dataplane) error {
	if from == b.on || from.name == b.on.name || b.want.Force || b.want.Mode != b.on.name || !r.serves(from) {
		return nil
	}
	// A plugin that does not answer must not block the swap.
	if v, err := b.on.vitals(ctx); err == nil && v.SwapImpact != "" {
		return fmt.Errorf("%s; to swap anyway: pointsman mode swap %s --force", v.SwapImpact, b.on.name)
	}
	if v, err := from.vitals(ctx); err == nil && v.SwapImpact != "" {
		return fmt.Errorf("of %s %s; to swap anyway: pointsman mode swap %s --force", from.name, v.SwapImpact, b.on.name)
	}
	if held := interceptedClusterIP(from.description(), b.on.description(), r.Tracker.All(), r.Interfaces); held != "" {
		return fmt.Errorf("%s, which %s would take over; if that is NodeLocal DNS, let it listen only on its link-local address; to swap anyway: pointsman mode swap %s --force", held, b.on.name, b.on.name)
	}
	lost := losses(from.cursorStatus(), b.on.cursorStatus())
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("%s would no longer be served: %s%s; to swap anyway: pointsman mode swap %s --force",
		phrase.Count(len(lost), "Service"), lost[0], phrase.AndMore(len(lost)-1), b.on.name)
}

// doCut makes an instance Active and the serving one Draining, while updates are held back and
// both have confirmed the same state. If it fails, both get their previous roles.
func (r *reconciler) doCut(ctx context.Context, b task) error {
	promote := func(ctx context.Context) error { return b.on.setRole(ctx, sdk.Active) }
	retire := func(ctx context.Context) error { return b.with.retire(ctx, sdk.Draining) }
	if b.undoes {
		return r.runParts(ctx, b, part{"returning", "restore", promote}, part{"returning", "recall", retire})
	}
	began, maxHeld := time.Now(), r.maxHeld()
	ctx, cancel := context.WithDeadline(ctx, began.Add(maxHeld))
	defer cancel()
	thaw := func() {}
	release := func() { b.on.Release(); b.with.Release(); thaw(); thaw = func() {} }
	defer release()
	tried, promoted := false, false
	err := r.runParts(ctx, b,
		part{"holding", "freeze", func(context.Context) error { thaw = r.Tracker.Freeze(); return nil }},
		part{"holding", "hold", func(ctx context.Context) error { return r.hold(ctx, b) }},
		part{"holding", "hand-over-affinity", func(ctx context.Context) error { r.handOverAffinity(ctx, b); return nil }},
		part{"cutting", "promote", func(ctx context.Context) (err error) {
			tried = true
			err = promote(ctx)
			promoted = err == nil
			return err
		}},
		part{"cutting", "retire", retire},
		part{"cutting", "release", func(context.Context) error { release(); return nil }},
	)
	if err != nil && time.Since(began) >= maxHeld-maxHeld/20 { // a call may fail slightly before its deadline
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

// goBack makes the former instance Active again, and then the new one Draining. It returns
// false if the former cannot become Active; then the new one continues to serve.
func (r *reconciler) goBack(b task) bool {
	ctx, cancel := context.WithTimeout(r.life, limits[plane.Cut])
	defer cancel()
	_ = r.enterStage(b, "returning", "restore")
	if err := b.with.setRole(ctx, sdk.Active); err != nil {
		r.failed("return", err)
		return false
	}
	if err := b.on.setRole(ctx, sdk.Draining); err != nil {
		r.failed("return", err)
	}
	return true
}

// yieldBack is goBack for two processes of one mode, of which only one can hold the writer's
// lock.
func (r *reconciler) yieldBack(b task) bool {
	ctx, cancel := context.WithTimeout(r.life, limits[plane.Cut])
	defer cancel()
	_ = r.enterStage(b, "returning", "recall")
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

// hold waits until both instances have confirmed all updates, and holds back further ones. It
// waits only a third of maxHeld for the serving instance, which may be the faulty one.
func (r *reconciler) hold(ctx context.Context, b task) error {
	if err := b.on.Hold(ctx); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, r.maxHeld()/3)
	defer cancel()
	if err := b.with.Hold(short); err != nil {
		r.failed("hold", err)
	}
	return nil
}

// handOverAffinity transfers client affinity between the plugins, if both support it.
func (r *reconciler) handOverAffinity(ctx context.Context, b task) {
	from, to := b.with.remote(), b.on.remote()
	if from == nil || to == nil {
		return
	}
	var entries []sdk.AffinityEntry
	err := from.ExportAffinity(ctx, func(e sdk.AffinityEntry) error { entries = append(entries, e); return nil })
	if err == nil && len(entries) > 0 {
		err = to.ImportAffinity(ctx, entries)
	}
	if err != nil && !errors.Is(err, wire.ErrUnsupported) {
		r.failed("hand-over-affinity", err)
	}
}

// doReplace replaces an instance by another one of its mode. Rules in the kernel simply stay.
// If connections pass through the process, both processes serve until the former one has no
// connections left. If doReplace fails, the former instance continues to serve.
func (r *reconciler) doReplace(ctx context.Context, b task) error {
	r.probe(ctx)
	promote := part{"cutting", "promote", func(ctx context.Context) error { return b.on.setRole(ctx, sdk.Active) }}
	if dies := diesWithProcess(b.on.description()); !dies || b.with.remote() == nil {
		err := r.runParts(ctx, b, part{"cutting", "stop", func(context.Context) error { b.with.Stop(); return nil }}, promote)
		if err != nil && b.with.isOver() {
			b.on.Stop() // the loop then sees the Loss of its process
			b.with.pin()
		}
		return err
	}
	moved := false
	err := r.runParts(ctx, b,
		part{"holding", "hand-over-affinity", func(ctx context.Context) error { r.handOverAffinity(ctx, b); return nil }},
		part{"cutting", "offer", b.on.tryActive}, // sockets can be shared (SO_REUSEPORT), but not the lock: Busy is expected
		part{"cutting", "retire", func(ctx context.Context) error { moved = true; return b.with.retire(ctx, sdk.Yielded) }}, promote)
	if err != nil && moved && !r.yieldBack(b) {
		r.failed("retire", err)
		return nil
	}
	return err
}

// doProve checks that connections to the canary succeed through an instance.
func (r *reconciler) doProve(ctx context.Context, b task) plane.Outcome {
	if err := r.canary.Begin(); err != nil {
		return plane.Outcome{Err: err, Answer: plane.Unknown}
	}
	r.mu.Lock()
	ways := r.ways
	on, _ := r.state.Instance(b.On)
	r.mu.Unlock()
	answer := plane.Yes
	err := r.runParts(ctx, b,
		part{"proving", "prove", func(ctx context.Context) error {
			waiting, cancel := context.WithTimeout(ctx, r.maxHeld())           // no longer than this, because updates may never stop
			_ = b.on.until(waiting, "has confirmed the canary", b.on.caughtUp) // the proof shows whether it has
			cancel()
			err := r.canary.Prove(ctx, ways, unservedNames(b.on.cursorStatus()))
			if errors.Is(err, canary.ErrUnproved) {
				r.failed("prove", err)
				answer, err = plane.Cannot, nil
			}
			return err
		}},
		part{"proving", "verify", func(ctx context.Context) error {
			if b.on.readyInStandby() || on.Former != "" { // the Verify step does it, before or after
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

// unservedNames returns the Services that a dataplane does not serve as specified.
func unservedNames(s track.CursorStatus) map[sdk.Name]bool {
	names := make(map[sdk.Name]bool)
	for _, u := range services.UnservedBy(s) {
		names[u.Name] = true
	}
	return names
}

// interceptedClusterIP describes a ClusterIP on an interface of this node, if a swap would intercept its traffic before
// the local process that listens there; otherwise it returns "". NodeLocal DNS, for example, assigns the ClusterIP of
// the cluster's DNS to an interface. A dataplane that serves only at the node's own addresses listens there itself.
func interceptedClusterIP(from, to sdk.Description, all iter.Seq[track.ServiceStatus], interfaces func() map[netip.Addr]string) string {
	takes := func(d sdk.Description) bool { return slices.Contains(d.Limits, sdk.LimitTakesAddresses) }
	if !takes(to) || takes(from) || slices.Contains(from.Limits, sdk.LimitOwnAddressesOnly) {
		return ""
	}
	ours := interfaces()
	for s := range all {
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

// losses returns the Services that the dataplane with progress now serves and the one with progress next does not, each
// with the reason.
func losses(now, next track.CursorStatus) []string {
	already := unservedNames(now)
	var lost []string
	for _, u := range services.UnservedBy(next) {
		if !already[u.Name] && u.Name.Namespace != canary.Namespace {
			lost = append(lost, u.Name.String()+": "+u.Why)
		}
	}
	slices.SortFunc(lost, strings.Compare)
	return lost
}

// The rest of this file contains the operations on one dataplane that steps use.

// pollInterval is how often until checks its condition without a notification. Few conditions change with time alone.
const pollInterval = time.Second / 4

// until waits until ok returns true. It calls ok with the mutex held.
func (p *dataplane) until(ctx context.Context, what string, ok func() bool) error {
	for {
		changed := p.changes.wait()
		p.mu.Lock()
		done, failure := ok(), p.followed.Error
		p.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s %s: %w", p.name, what, errors.Join(ctx.Err(), p.trouble(failure)))
		case <-changed:
		case <-time.After(pollInterval):
		}
	}
}

// trouble returns the known problem of the dataplane, or nil.
func (p *dataplane) trouble(failure string) error {
	if why := p.shownStatus().Why; why != "" {
		return errors.New(why)
	}
	if failure != "" {
		return errors.New(failure)
	}
	return nil
}

// filled reports whether it has confirmed the whole state. The caller holds the mutex.
func (p *dataplane) filled() bool { return p.session.filled() }

// caughtUp reports whether it has confirmed all updates, or gets none. The caller holds the
// mutex.
func (p *dataplane) caughtUp() bool {
	return !p.session.hasFeed() || p.session.full && p.session.cursor.Status().Pending == 0
}

// Hold waits until it has confirmed all updates, and then holds back further ones until
// Release.
func (p *dataplane) Hold(ctx context.Context) error {
	err := p.until(ctx, "has confirmed all updates", p.caughtUp)
	if err != nil {
		return err
	}
	return p.hold(ctx)
}

// hold holds back updates until Release.
func (p *dataplane) hold(ctx context.Context) error {
	s := p.current()
	if !s.hasFeed() {
		return nil
	}
	if err := s.feed.Hold(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = s.feed
	return nil
}

// Release ends a Hold.
func (p *dataplane) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		p.held.Release()
		p.held = nil
	}
}

// setRole sets the role of its process. It waits for the writer's lock if the role needs it.
func (p *dataplane) setRole(ctx context.Context, role sdk.Role) error {
	s := p.current()
	if s == nil {
		return errNoProcess
	}
	return p.setSessionRole(ctx, s, role)
}

// retire is like setRole, but succeeds if the process is away. The process gets the role when it is back.
func (p *dataplane) retire(ctx context.Context, role sdk.Role) error {
	if err := p.setRole(ctx, role); p.remote() != nil {
		return err
	}
	return nil
}

// tryActive makes its process Active, and returns nil also if another process holds the
// writer's lock.
func (p *dataplane) tryActive(ctx context.Context) error {
	s := p.current()
	if s == nil {
		return errNoProcess
	}
	err := p.noteBusy(s, s.remote.SetRole(ctx, sdk.Active))
	if err == nil {
		p.recordRole(s, sdk.Active)
	} else if errors.As(err, new(*sdk.Busy)) {
		err = nil
	}
	return err
}

// verify compares what the kernel serves with what it was sent, while updates are held back and
// once the whole state is confirmed. It returns false if the plugin cannot say what it serves.
func (p *dataplane) verify(ctx context.Context) (bool, error) {
	if err := p.until(ctx, "has confirmed the whole state", p.filled); err != nil {
		return false, err
	}
	if err := p.hold(ctx); err != nil {
		return false, err
	}
	defer p.Release()
	s := p.current()
	if !s.hasFeed() {
		return false, errNoProcess
	}
	defer debug.FreeOSMemory() // a comparison leaves as much garbage as a Full
	confirmed := s.cursor.Confirmed()
	if n := s.cursor.Wanted(); len(confirmed) == 0 && n > 0 {
		return false, fmt.Errorf("it has confirmed none of %s", phrase.Count(n, "Service port"))
	}
	found, err := services.Inspect(ctx, p, func(sdk.Name) bool { return true })
	switch {
	case errors.Is(err, wire.ErrUnsupported):
		return false, nil
	case err != nil:
		return false, err
	}
	if err := services.Differences(confirmed, found); err != nil {
		return true, fmt.Errorf("%w; try: pointsman-conformance --run C07 %s", err, p.plugin.Where())
	}
	return true, nil
}

// readyInStandby reports whether it prepares everything but the entry points while in Standby.
// A dataplane that only listens on the frontends' own addresses cannot, while another one
// listens there.
func (p *dataplane) readyInStandby() bool {
	d := p.description()
	return !diesWithProcess(d) || !slices.Contains(d.Limits, sdk.LimitOwnAddressesOnly)
}

// vitals asks its process for a report.
func (p *dataplane) vitals(ctx context.Context) (wire.Vitals, error) {
	remote := p.remote()
	if remote == nil {
		return wire.Vitals{}, errNoProcess
	}
	return remote.Vitals(ctx)
}

// Stop ends a launched process. A plugin at an address keeps running and releases the writer's
// lock. Rules in the kernel stay.
func (p *dataplane) Stop() {
	if remote := p.remote(); remote != nil && p.plugin.Address != "" {
		ctx, cancel := context.WithTimeout(context.Background(), yieldLimit)
		defer cancel()
		if err := remote.SetRole(ctx, sdk.Yielded); err != nil {
			p.host.Log.Info("writer's lock not released", "plugin", p.name, "err", err)
		}
	}
	if !p.stop(errNotNeeded) {
		p.setState(Stopped, errNotNeeded.Error())
	}
}

const yieldLimit = 2 * time.Second

// Cleanup removes its rules from the node. It stops updates first, or the rules would come
// back. If its process cannot clean up, another process of its binary does. If another process
// is the writer of its mode, the rules belong to that process and Cleanup only ends its own.
func (p *dataplane) Cleanup(ctx context.Context) error {
	p.mu.Lock()
	p.clearing = true
	p.mu.Unlock()
	defer p.Release()
	plugin := p.plugin
	if plugin.Address != "" && p.isOver() {
		if err := p.open(ctx, 0, p.currentOptions()); err != nil {
			p.lost(err, 0)
			return err
		}
	}
	err := p.clear(ctx)
	if busy := (*sdk.Busy)(nil); errors.As(err, &busy) {
		p.host.Log.Info("rules left to another writer", "plugin", p.name, "holder", busy.Error())
		p.Stop()
		return nil
	}
	if err != nil && plugin.Address != "" {
		return fmt.Errorf("clean up %s at %s: %w; if this persists, run there: pointsman-dataplane-%s cleanup", p.name, plugin.Address, err, p.name)
	}
	p.Stop()
	if err == nil {
		return nil
	}
	if !errors.Is(err, errNoProcess) {
		p.host.Log.Warn("cleanup by the running process failed", "plugin", p.name, "err", err)
	}
	_, err = binaries.Run(ctx, plugin.Path, plugin.SHA256, "cleanup")
	return err
}

// clear asks its process to clean up what it and earlier processes left, and holds back updates
// from then on.
func (p *dataplane) clear(ctx context.Context) error {
	remote := p.remote()
	if remote == nil {
		return errNoProcess
	}
	if err := p.hold(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, busyFor) // tools that an ended process started may hold the lock for a moment
	defer cancel()
	return retryWhileBusy(limited, func() error {
		_, err := remote.Cleanup(ctx, sdk.Leftovers{})
		return err
	})
}
