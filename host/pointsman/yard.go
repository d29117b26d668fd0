// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
)

// A yard is the dataplanes that the host runs: one that serves, and for the time of
// a swap another. It is what a swap needs of the host (swap.Yard).
type yard struct {
	*host
	runner *swap.Runner
	canary *canary

	mu      sync.Mutex // guards what follows
	main    *plane     // the one that serves
	planes  []*plane   // all that run
	life    context.Context
	standby inForce // as written down last
}

// serving is the dataplane that serves.
func (h *host) serving() *plane {
	h.yard.mu.Lock()
	defer h.yard.mu.Unlock()
	return h.yard.main
}

// newPlane is a dataplane of that mode, which begins with start.
func (h *host) newPlane(mode, slot string) *plane {
	s := h.follower.Host()
	p := &plane{
		name: mode, slot: slot, tracker: h.tracker, reports: h.reports, log: h.log, book: newLogBook(),
		minGap: s.MinSyncPeriod, period: s.SyncPeriod,
		applied: h.applied, refused: h.servers.Failed,
	}
	p.lost = func(p *plane, why string) { h.yard.runner.Lost(p, why) }
	p.supervised(h.plugin(mode, slot))
	return p
}

// begin decides with which dataplane to serve: that of a swap which a host before
// had under way, or the one that served before, or the one that is asked for.
func (y *yard) begin() {
	file := filepath.Join(y.settings.StateDir, "swap.json")
	was, err := swap.Remember(file)
	if err != nil {
		y.reports.Report(report.Event{Warning: true, Reason: swapNote, Message: err.Error()})
	}
	y.standby = readInForce(y.settings.StateDir)
	serve, slot := y.standby.serving(y.settings.Mode, y.there)
	same := was.Plan.Same
	if was.Stage != swap.Idle && !same {
		serve, slot = was.Keeps(), ""
	}
	y.main = y.newPlane(serve, slot)
	y.main.want = sdk.Active
	y.planes = []*plane{y.main}
	y.runner = swap.New(y, file, y.main)
	if was.Stage == swap.Idle {
		return
	}
	if same { // the kernel's state was the hand-over, and is whole; the other process goes
		_, err := supervise.EndLeftover(context.Background(), pluginStateDir(y.settings, serve), otherSlot(slot), false)
		if err = errors.Join(err, os.Remove(file)); err != nil {
			y.Failed(swap.Finish, err)
		}
		return
	}
	y.resume(was)
}

// resume has the runner go on with a swap.
func (y *yard) resume(was swap.Machine) {
	started, coming := was.Parties()
	name := started
	if name == y.main.name {
		name = coming
	}
	other := y.newPlane(name, "")
	if was.Stage >= swap.Draining {
		other.want = sdk.Draining
	}
	y.planes = append(y.planes, other)
	if y.main.name == started {
		y.runner.Resume(was, y.main, other)
	} else {
		y.runner.Resume(was, other, y.main)
	}
}

// there reports whether a mode has a binary.
func (y *yard) there(mode string) bool {
	return slices.ContainsFunc(discover(y.settings), func(f supervise.Found) bool { return f.Name == mode && f.Err == nil })
}

// run runs the dataplanes, and swaps, until ctx ends.
func (y *yard) run(ctx context.Context) error {
	y.mu.Lock()
	y.life = ctx
	begun := slices.Clone(y.planes)
	y.mu.Unlock()
	for _, p := range begun {
		p.start(ctx)
	}
	var parts sync.WaitGroup
	parts.Go(func() { y.runner.Run(ctx) })
	parts.Go(func() { y.follow(ctx) })
	parts.Wait()
	y.canary.end()
	for _, p := range y.all() {
		p.wait()
	}
	return nil
}

// follow goes to the mode that is asked for, once the one that served before
// serves; that is what a file that was changed while no host ran comes to.
func (y *yard) follow(ctx context.Context) {
	y.mu.Lock()
	main, wanted := y.main, y.standby.wanted(y.settings.Mode)
	y.mu.Unlock()
	if main.name == wanted || !y.there(wanted) || main.Filled(ctx) != nil {
		return
	}
	for y.runner.Machine().Stage != swap.Idle {
		select {
		case <-ctx.Done():
			return
		case <-time.After(glance):
		}
	}
	y.ask(wanted, "the mode in the config file", false)
}

func (y *yard) all() []*plane {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.Clone(y.planes)
}

// leave has the processes outlive the host.
func (y *yard) leave() {
	for _, p := range y.all() {
		p.supervisor.Leave()
	}
}

// reload follows a change of the config file.
func (y *yard) reload(c config.Change) error {
	var errs []error
	for _, p := range y.all() {
		errs = append(errs, p.setPeriods(c.Host.MinSyncPeriod, c.Host.SyncPeriod))
	}
	if slices.Contains(c.Applied, "mode") && c.Host.Mode != y.serving().name {
		errs = append(errs, y.ask(c.Host.Mode, "the mode in the config file", false))
	}
	return errors.Join(errs...)
}

// ask begins a swap to mode.
func (y *yard) ask(mode, why string, force bool) error {
	main, s := y.serving(), y.follower.Host()
	p := swap.Plan{
		From: main.name, To: mode, Same: main.name == mode, Why: why, Force: force,
		Drain: s.Swap.DrainTimeout, Stay: s.Swap.OnFailure == "stay",
	}
	if p.Same {
		p.Overlap = slices.Contains(main.supervisor.Status().Description.Limits, sdk.LimitDiesWithProcess)
	}
	err := y.runner.Ask(p)
	if err != nil {
		y.reports.Report(report.Event{Warning: true, Reason: swapNote, Object: mode, Message: err.Error()})
	}
	return err
}

// Open has To's process started. One that still drains is wanted back.
func (y *yard) Open(ctx context.Context, p swap.Plan) (swap.Dataplane, error) {
	for _, d := range y.all() {
		if d.name == p.To && d != y.serving() {
			err := d.SetRole(ctx, sdk.Standby)
			d.refill()
			y.prepare()
			return d, err
		}
	}
	y.prepare()
	slot := ""
	if p.Same {
		slot = otherSlot(y.serving().slot)
	}
	d := y.newPlane(p.To, slot)
	if !p.Same || p.Overlap {
		d.want = sdk.Standby // else it inherits the role with the lock
	}
	y.mu.Lock()
	y.planes = append(y.planes, d)
	life := y.life
	y.mu.Unlock()
	d.start(life)
	if err := d.comeUp(ctx); err != nil {
		d.Stop()
		y.dropped(d)
		return nil, err
	}
	return d, nil
}

// prepare makes the canary, of which the one to come is told like of any Service.
func (y *yard) prepare() {
	if err := y.canary.begin(); err != nil {
		y.Failed(swap.Launch, err)
	}
}

// otherSlot is that of a second process of one mode.
func otherSlot(slot string) string {
	if slot == "" {
		return "b"
	}
	return ""
}

// comeUp waits until it is in session, or has failed to be.
func (p *plane) comeUp(ctx context.Context) error {
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

// named is the dataplane of that mode that runs; nil: none does.
func (y *yard) named(mode string) *plane {
	if main := y.serving(); main.name == mode {
		return main
	}
	for _, p := range y.all() {
		if p.name == mode {
			return p
		}
	}
	return nil
}

func (y *yard) dropped(d *plane) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.planes = slices.DeleteFunc(y.planes, func(p *plane) bool { return p == d })
}

// Check says what would be lost: Services that are served now, and that the one to
// come has said it cannot serve; or what else the node has from the one to leave.
func (y *yard) Check(ctx context.Context, p swap.Plan) error {
	var next *plane
	for _, d := range y.all() {
		if d.name == p.To && d != y.serving() {
			next = d
		}
	}
	if next == nil {
		return errNoProcess
	}
	main := y.serving()
	if err := relies(ctx, main.supervisor.Status().Description, next.supervisor.Status().Description); err != nil && !p.Force {
		return fmt.Errorf("%w; or, to do it all the same: pointsman mode swap %s --force", err, p.To)
	}
	lost := losses(main.status(), next.status())
	if len(lost) == 0 || p.Force {
		return nil
	}
	return fmt.Errorf("%s would not be served any more: %s%s; to do it all the same: pointsman mode swap %s --force",
		count(len(lost), "Service"), lost[0], andMore(len(lost)-1), p.To)
}

// Freeze lets no change of Services in.
func (y *yard) Freeze() (thaw func()) { return y.tracker.Freeze() }

// Sound finds the ways to the canary that lead somewhere.
func (y *yard) Sound(ctx context.Context) []string { return y.canary.sound(ctx) }

// Prove holds the ways to leading there still, but for those that the one that
// serves now has said it does not serve.
func (y *yard) Prove(ctx context.Context, ways []string) error {
	next := y.coming()
	if next == nil {
		return errNoProcess
	}
	return y.canary.prove(ctx, ways, next.fails())
}

// coming is the dataplane besides the one that serves.
func (y *yard) coming() *plane {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range y.planes {
		if p != y.main {
			return p
		}
	}
	return nil
}

// Serves makes d the dataplane that the host speaks of, and forgets those that
// have ended.
func (y *yard) Serves(d swap.Dataplane) {
	p, ok := d.(*plane)
	if !ok {
		return
	}
	y.mu.Lock()
	y.main = p
	y.planes = slices.DeleteFunc(y.planes, func(o *plane) bool { return o != p && o.over() })
	y.standby.Serving, y.standby.Slot = p.name, p.slot
	next := y.standby
	y.mu.Unlock()
	if err := next.write(y.settings.StateDir); err != nil {
		y.reports.Report(report.Event{Warning: true, Reason: swapNote, Object: p.name, Message: err.Error()})
	}
}

// Moved reports each change of stage.
func (y *yard) Moved(before, now swap.Machine) {
	switch now.Stage {
	case swap.Draining:
		go y.canary.end()
	case swap.Idle:
		go y.canary.end()
		y.settled(now.Last)
		return
	}
	e := report.Event{Reason: swapStage, Object: now.Plan.To, Message: fmt.Sprintf("%s: %s", now.Plan, now.Stage)}
	if now.Undo != "" && before.Undo == "" {
		e.Warning, e.Message = true, e.Message+", to undo it: "+now.Undo
	}
	y.reports.Report(e)
}

// settled reports how a swap ended, and forgets the dataplane that left.
func (y *yard) settled(o swap.Outcome) {
	e := report.Event{Reason: swapDone, Object: o.Plan.To, Message: fmt.Sprintf("%s in %s", o.Plan, round(o.Took))}
	if o.Err != "" {
		e.Reason, e.Warning = swapUndone, true
		e.Message = fmt.Sprintf("%s, and %s serves on: %s", o.Plan, o.Plan.From, o.Err)
	}
	y.reports.Report(e)
	if o.Left != "" {
		y.reports.Report(report.Event{Warning: true, Reason: swapNote, Object: o.Plan.To, Message: "not finished: " + o.Left})
	}
}

// Failed reports what did not come off and is no end of the swap.
func (y *yard) Failed(a swap.Action, err error) {
	y.reports.Report(report.Event{Warning: true, Reason: swapNote, Message: fmt.Sprintf("%s: %v", a, err)})
}

var _ swap.Yard = (*yard)(nil)
var _ swap.Dataplane = (*plane)(nil)
