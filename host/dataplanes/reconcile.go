// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk"
)

// A reconciler assigns roles to the processes of dataplanes: it asks plane.Plan for the next
// steps and runs them. Only its loop plans; steps run concurrently, at most one for each
// instance.
type reconciler struct {
	installed
	canary  *canary.Canary
	life    context.Context // of the host: no process outlives it
	main    atomic.Pointer[dataplane]
	changes notifier       // of a dataplane or of the desired mode
	steps   sync.WaitGroup // running ones, and goroutines that count connections
	looked  time.Time      // when reconcile last checked conditions that send no notification

	writing sync.Mutex  // guards onDisk; lock order: writing, mu, dataplane.mu
	onDisk  plane.Facts // as last written

	mu        sync.Mutex // guards the fields below
	state     plane.State
	planes    map[plane.ID]*dataplane // of the instances in state
	startable map[string]bool         // whether a mode that Plan may start has a plugin
	fileMode  string                  // the config file's mode
	builds    map[string]build        // by mode, for modes that run or are wanted
	nonce     uint64                  // of the last label for a build with unchanged binary and options
	dryRun    *plane.Want             // nil if no dry run is in progress
	formers   map[string]*dataplane   // by mode: stopped, but restarted if the replacement fails
	ways      []string                // frontends that reached the canary before traffic was moved
	swap      *progress               // nil if no swap is in progress
	dropped   string                  // why the previously wanted mode is no longer wanted
	last      result                  // the last swap; zero if there was none
	undone    result                  // the last change of mode if it was undone; zero if it succeeded
	unwritten string                  // the error of the last write; empty if it succeeded
	failures  map[string]string       // by step and mode, the last reported error, to report each error once
}

// A build identifies the binary and options of a mode.
type build struct {
	label   string
	binary  string // identifies its content
	options []byte
	why     string // why it replaces the previous build; empty if the options changed
}

// reconcileInterval is the interval at which the loop runs without a change: to detect a replaced
// binary, and to retry failed writes.
const reconcileInterval = time.Second

// Begin chooses the first dataplane: the mode that served under the previous host, or else the
// desired mode. It returns ErrNoPlugin if that mode has no plugin here, and config.Problems if
// the plugin refuses its options. Nothing was started then.
func (set *Set) Begin() error {
	facts, err := plane.ReadFacts(set.Begun.StateDir)
	if err != nil {
		set.Reports.Report(report.Event{Warning: true, Reason: report.StateNotUsed, Message: err.Error() + "; the host starts without it"})
	}
	set.fileMode = set.mode(set.Begun.Mode)
	facts = facts.WithFileMode(set.fileMode)
	if r := facts.Refused; r != nil && r.Former != "" {
		facts.Refused = nil // the former build is gone: only the refused binary exists
	}
	wanted := facts.Wanted(set.fileMode)
	if facts.Served == "" { // as in a new pod
		facts = set.observed(context.Background(), facts, wanted)
	}
	if facts.Served != "" && !set.available(facts.Served) {
		gone := facts.Served
		facts.Served = ""
		facts = facts.WithLeft(gone)
	}
	for _, mode := range plane.Launched(set.Begun.StateDir) {
		if set.Begun.Plugins[mode].Address == "" {
			facts = facts.WithLeft(mode) // in case the file of the previous host was lost
		}
	}
	first := facts.Served
	if first == "" {
		first = wanted
	}
	if !set.exists(first) {
		return fmt.Errorf("mode %s: %w: %s; try: --mode NAME, or --plugin-dir DIR", first, ErrNoPlugin, binaries.Missing(set.Begun, first))
	}
	if err := set.optionsRefused(context.Background(), set.Begun, first); err != nil {
		return err
	}
	if r := facts.Refused; r != nil && r.Mode != facts.Served {
		set.undone = result{change: change{From: facts.Served, To: r.Mode}, at: r.At, err: r.Why, stays: facts.Served, undone: true}
		set.last = set.undone
	}
	set.state.Facts = facts
	set.main.Store(set.newDataplane(first))
	if dir := socketDir(set.Begun.StateDir); dir != "" { // otherwise the sockets are in a shared directory
		_ = os.RemoveAll(dir) // what a killed host left there does no harm
	}
	_ = set.write(true) // write reports the error, and the loop retries
	return nil
}

// ErrNoPlugin is returned by Begin if the mode has no plugin. The host ends then: waiting for a
// plugin would look like a working host on a node without a dataplane.
var ErrNoPlugin = errors.New("no plugin is installed")

// loop plans until ctx ends, and then waits for the running steps.
func (r *reconciler) loop(ctx context.Context) {
	defer r.steps.Wait()
	ticker := time.NewTicker(reconcileInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		changed := r.changes.wait()
		due := time.NewTimer(r.reconcile(ctx, time.Now()))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-due.C:
		case <-ticker.C:
		}
		due.Stop()
	}
}

// A task is a step with the dataplanes of its instances.
type task struct {
	plane.Step
	want     plane.Want
	on, with *dataplane // with is nil if the step has none
	undoes   bool       // the Want was refused, and the step leads back
}

// reconcile starts the steps that are due, and returns the time until its next call.
func (r *reconciler) reconcile(ctx context.Context, now time.Time) time.Duration {
	look := now.Sub(r.looked) >= reconcileInterval
	if look {
		r.looked = now
	}
	if look {
		r.findAvailable()
	}
	r.mu.Lock()
	if look {
		r.updateBuilds()
		r.checkWaiting(now)
	}
	r.observe(ctx, now)
	var all []task
	var wake time.Time
	for again := true; again; {
		w, s := r.want(), r.state
		s.Facts.Left = slices.DeleteFunc(slices.Clone(s.Facts.Left), func(mode string) bool { return !r.startable[mode] })
		var steps []plane.Step
		steps, wake = plane.Plan(w, s, now)
		again = false
		for _, s := range steps {
			if again = s.Do == plane.Refuse; again {
				r.state.Refuse(s, w, now)
				continue
			}
			all = append(all, r.begin(s, w, now))
		}
	}
	r.chooseMain()
	events := r.updateSwap(r.want(), now)
	r.mu.Unlock()
	r.reportAll(events)
	unwritten := r.write(look)
	for _, b := range all {
		r.steps.Go(func() { r.runStep(ctx, b, unwritten) })
	}
	if wake.IsZero() {
		return time.Hour
	}
	return max(10*time.Millisecond, wake.Sub(now))
}

// findAvailable finds out which modes that Plan may start have a plugin.
func (r *reconciler) findAvailable() {
	r.mu.Lock()
	modes := append(slices.Clone(r.state.Facts.Left), r.state.Facts.Wanted(r.fileMode))
	r.mu.Unlock()
	for _, mode := range modes {
		there := r.available(mode)
		r.mu.Lock()
		r.startable[mode] = there
		r.mu.Unlock()
	}
}

// want returns the Want. While a mode serves, a desired mode without a plugin here does not
// replace it. The caller holds the mutex.
func (r *reconciler) want() plane.Want {
	drain := r.Now().Swap.DrainTimeout.Duration
	if r.dryRun != nil {
		w := *r.dryRun
		w.Build, w.Drain = cmp.Or(w.Build, r.buildOf(w.Mode)), drain
		return w
	}
	f := r.state.Facts
	mode := f.Wanted(r.fileMode)
	if f.Served != "" && !r.startable[mode] {
		mode = f.Served
	}
	return plane.Want{Mode: mode, Build: r.buildOf(mode), Number: f.Number, Force: f.Force, Drain: drain}
}

// buildOf returns the label of a mode's build. The caller holds the mutex.
func (r *reconciler) buildOf(mode string) string {
	b, known := r.builds[mode]
	if !known {
		b = r.identify(mode)
		r.builds[mode] = b
	}
	return b.label
}

// identify returns the build for a mode's binary and the options in the settings.
func (r *reconciler) identify(mode string) build {
	b := build{binary: r.binaryOf(mode), options: r.Now().Plugins[mode].Options}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s", b.binary, b.options)
	b.label = fmt.Sprintf("%x", h.Sum64())
	return b
}

// binaryOf identifies the content of a mode's binary, or returns "" if something else runs it.
func (r *reconciler) binaryOf(mode string) string {
	if r.Now().Plugins[mode].Address != "" {
		return ""
	}
	return launch.Plugin{Path: r.found(mode).Path}.Identify()
}

// newBuild gives a mode a new build label, so that a new process replaces the running one. The
// caller holds the mutex.
func (r *reconciler) newBuild(mode, why string) {
	b := r.identify(mode)
	b.why = why
	r.nonce++
	b.label += fmt.Sprintf("-%d", r.nonce)
	r.builds[mode] = b
}

// updateBuilds gives a mode a new build if its options changed, or if its build is refused and
// its binary changed. A changed binary of the serving mode is not a reason: that takes `plugin
// restart`. The caller holds the mutex.
func (r *reconciler) updateBuilds() {
	for mode, b := range r.builds {
		refused := r.state.Facts.Refused
		isRefused := refused != nil && refused.Mode == mode && refused.Build == b.label
		if !bytes.Equal(r.Now().Plugins[mode].Options, b.options) || isRefused && r.binaryOf(mode) != b.binary {
			r.builds[mode] = r.identify(mode)
		}
	}
}

// checkWaiting finds the waiting instances that should be retried at once. The caller holds the
// mutex.
func (r *reconciler) checkWaiting(now time.Time) {
	for _, i := range r.state.Have {
		if d := r.planes[i.ID]; d != nil && d.noteChecked(now) && i.Doing == 0 {
			r.state.Ready(i.ID)
		}
	}
}

// observe records the observations of all processes in session. The caller holds the mutex.
func (r *reconciler) observe(ctx context.Context, now time.Time) {
	for _, i := range slices.Clone(r.state.Have) {
		d := r.planes[i.ID]
		if d == nil {
			continue
		}
		if o, up := d.observed(); up {
			r.state.Observe(i.ID, o, now)
		}
		i, _ = r.state.Instance(i.ID)
		drains := i.Up && (i.Role == sdk.Draining || i.Role == sdk.Yielded) && i.Doing == 0 && i.Flows != 0 && !i.Drained.IsZero()
		if drains && d.counting == nil {
			counting, cancel := context.WithCancel(ctx)
			d.counting = cancel
			r.steps.Go(func() { r.count(counting, d) })
		}
	}
}

// begin records that a step begins. The caller holds the mutex.
func (r *reconciler) begin(s plane.Step, w plane.Want, now time.Time) task {
	refused := r.state.Refused(w, now)
	b := task{want: w, undoes: refused != nil}
	label, mode := "", s.Mode
	if i, there := r.state.Instance(s.On); there {
		label, mode = i.Build, i.Mode
	}
	if former := r.formers[mode]; s.Do == plane.Start && s.On == 0 && b.undoes && former != nil && refused.Former != "" {
		label = refused.Former
	} else if s.Do == plane.Start && (label == "" || r.Now().Plugins[mode].Address != "") {
		if label = r.buildOf(mode); mode == w.Mode {
			label = w.Build
		}
	}
	b.Step = r.state.Begin(s, label, now)
	if s.Do == plane.Start && s.On == 0 {
		r.addInstance(b.On, mode, label)
	}
	b.on, b.with = r.planes[b.On], r.planes[b.With]
	for _, d := range []*dataplane{b.on, b.with} {
		d.stopCounting()
	}
	if s.Do == plane.Start && b.undoes && refused.Former == label && label != "" {
		b.on.pin() // otherwise it would start the refused binary
	}
	return b
}

// addInstance adds the dataplane for a new instance: the one from Begin, the former one after
// its replacement was refused, or a new one. The caller holds the mutex.
func (r *reconciler) addInstance(id plane.ID, mode, label string) {
	d, former := r.serving(), r.formers[mode]
	switch {
	case d.name == mode && d.id == 0: // from Begin
	case former != nil && former.build == label:
		d = former
		delete(r.formers, mode)
	default:
		d = r.newDataplane(mode)
	}
	d.id, d.build, r.planes[id] = id, label, d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.succeeds = slices.ContainsFunc(r.state.Have, func(i plane.Instance) bool { return i.ID != id && i.Mode == mode && i.Up })
}

// end records the outcome of a step.
func (r *reconciler) end(b task, o plane.Outcome) {
	now := time.Now()
	r.mu.Lock()
	b.on.phase, b.on.cancel = "", nil
	if i, there := r.state.Instance(b.On); there && !i.Up && b.Do != plane.Start && b.Do != plane.Stop && b.Do != plane.Cleanup {
		o.Err, o.Answer = errors.Join(o.Err, errNoProcess), plane.Unknown // its process ended meanwhile
	}
	r.state.End(b.Step, o, now)
	if l := b.on.loss; l != nil {
		r.lost(b.on, *l, now)
		b.on.loss = nil
	}
	if i, there := r.state.Instance(b.On); there && !i.Up {
		b.on.setNextStart(i.Next)
	}
	if b.Do == plane.Replace && o.Err == nil && b.with != nil && b.with.isOver() {
		r.forgetFormer(b.with.name)
		r.formers[b.with.name] = b.with
		delete(r.planes, b.With)
	}
	if b.Do == plane.Prove && o.Err == nil {
		r.forgetFormer(b.on.name)
	}
	if _, there := r.state.Instance(b.On); !there { // it was stopped or cleaned up
		delete(r.planes, b.On)
		b.on.closeBinary()
		if f := r.state.Facts; b.on.plugin.Address == "" && b.on.name != f.Served && !slices.Contains(f.Left, b.on.name) {
			_ = os.RemoveAll(plane.PluginDir(r.Begun.StateDir, b.on.name)) // if it stays, the next host cleans up once more
		}
	}
	r.mu.Unlock()
	r.changes.notify()
}

// forgetFormer closes the former dataplane of a mode, because its replacement serves. The
// caller holds the mutex.
func (r *reconciler) forgetFormer(mode string) {
	if former := r.formers[mode]; former != nil {
		former.closeBinary()
		delete(r.formers, mode)
	}
}

// lost records that the process of a dataplane has ended. The caller holds the mutex.
func (r *reconciler) lost(d *dataplane, l plane.Loss, now time.Time) {
	if d.cancel != nil {
		d.cancel()
	}
	d.stopCounting()
	r.state.Lost(d.id, l, now)
}

// processLost is called when the process of a dataplane has ended.
func (r *reconciler) processLost(d *dataplane, l plane.Loss) {
	r.mu.Lock()
	if i, there := r.state.Instance(d.id); there && i.Doing == plane.Start {
		d.loss = &l
	} else if there {
		r.lost(d, l, time.Now())
		i, _ = r.state.Instance(d.id)
		d.setNextStart(i.Next)
	}
	r.mu.Unlock()
	r.changes.notify()
}

// count waits until a draining dataplane has no connections left, and records that. It ends with
// ctx, when the dataplane no longer drains or its process has ended.
func (r *reconciler) count(ctx context.Context, d *dataplane) {
	err := plane.Fail("draining/drain")
	for none := 0; none < 3; { // one zero is not enough: a flow that is just starting may be missing in a count
		v, failed := d.vitals(ctx)
		if none++; v.Flows > 0 || failed != nil || err != nil {
			none = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(countInterval):
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil {
		r.state.Drained(d.id)
		d.stopCounting()
		r.changes.notify()
	}
}

// stopCounting stops counting connections. The caller holds the reconciler's mutex.
func (p *dataplane) stopCounting() {
	if p != nil && p.counting != nil {
		p.counting()
		p.counting = nil
	}
}

// countInterval is the polling interval: no dataplane reports the end of its last connection.
const countInterval = 100 * time.Millisecond

// chooseMain makes the serving instance the main dataplane. The caller holds the
// mutex.
func (r *reconciler) chooseMain() {
	var best *dataplane
	rank := 0
	for _, i := range r.state.Have {
		n := 1
		switch {
		case i.Mode != r.state.Facts.Served || i.Doing == plane.Stop:
			continue
		case i.Role == sdk.Active && i.Up:
			n = 4
		case i.Served:
			n = 3
		case i.Up && i.Role != sdk.Yielded:
			n = 2
		}
		if d := r.planes[i.ID]; d != nil && n >= rank {
			best, rank = d, n
		}
	}
	if best != nil {
		r.main.Store(best)
	}
}

// write writes the facts to disk. Without look it writes only if they changed or the last write
// failed; with look it also checks the file. Failed writes are retried each second.
func (r *reconciler) write(look bool) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	facts, before := r.state.Facts, r.unwritten
	r.mu.Unlock()
	if !look && before == "" && reflect.DeepEqual(facts, r.onDisk) {
		return nil
	}
	err := facts.Write(r.Begun.StateDir)
	r.onDisk = facts
	unwritten := ""
	if err != nil {
		unwritten = err.Error()
	}
	r.mu.Lock()
	r.unwritten = unwritten
	r.mu.Unlock()
	switch {
	case err != nil && before != unwritten:
		r.Reports.Report(report.Event{Warning: true, Reason: report.StateNotWritten, Message: unwritten})
	case err == nil && before != "":
		r.Reports.Report(report.Event{Reason: report.StateWritten, Message: "the state for the next host is written"})
	}
	return err
}

// Unwritten returns why the facts for the next host could not be written, or "".
func (r *reconciler) Unwritten() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unwritten
}

// setFileMode sets the config file's mode after it changed. That replaces an earlier request.
func (r *reconciler) setFileMode(mode string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped, r.dryRun, r.fileMode = byOther, nil, mode
	r.state.Facts = r.state.Facts.WithRequest(mode, mode, false)
}
