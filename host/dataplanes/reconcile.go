// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk"
)

// A reconciler gives the processes of dataplanes their roles: it asks plane.Plan what to do next, and has it done.
// Its loop is the only goroutine that plans; steps run beside it, one for each instance.
type reconciler struct {
	installed
	*group
	canary  *canary.Canary
	writing sync.Mutex // guards what follows, and is taken before mu
	store   *plane.Store
	onDisk  plane.Facts // what was written last

	steps sync.WaitGroup

	looked time.Time // when reconcile last looked at what no change tells of

	mu        sync.Mutex // guards what follows, and is taken before that of the group
	state     plane.State
	startable map[string]bool                 // modes that Plan may start, by whether they have a plugin
	fileMode  string                          // the config file's mode
	builds    map[string]build                // by mode, of which processes run or are wanted
	nonce     uint64                          // of the last build that was made without another binary or other options
	dryRun    *plane.Want                     // nil: none is under way
	spare     *dataplane                      // that the first Start of its mode is to use; nil: none
	formers   map[string]*dataplane           // by build: stopped, to be started again if what replaced it fails
	losses    map[plane.ID]plane.Loss         // of instances whose process ended while the step that started it went on
	phases    map[plane.ID]string             // the stage that the step of an instance is in
	cancels   map[plane.ID]context.CancelFunc // of steps that need the process of their instance
	counting  map[plane.ID]context.CancelFunc // instances of which the connections are counted
	ways      []string                        // to the canary, that led somewhere before traffic was moved
	swap      *progress                       // nil: none is under way
	dropped   string                          // why what was wanted before is not wanted any more
	last      result                          // the last swap; zero: there was none
	undone    result                          // the last change of mode, where it was undone; zero: it was made
	unwritten []string                        // what could not be written down
	failures  map[string]string               // by mode, what was reported last of a step that fails again and again
}

// A build identifies the binary and the options that a mode is run with.
type build struct {
	label   string
	binary  string // identifies its content
	options []byte
	why     string // it takes the place of the one before; empty: the options have changed
}

// reconcileEach is how often the loop looks where nothing has changed: for a binary that was replaced, and for what is
// to be written again.
const reconcileEach = time.Second

// Begin decides with which dataplane to begin: the one that a host before served by, or the one that is asked for.
// Where that is none which has a plugin here, it returns ErrNoPlugin, and where that refuses its options
// config.Problems; nothing was begun then.
func (set *Set) Begin() error {
	store, facts, err := plane.Open(set.Begun.StateDir)
	if err != nil {
		set.Reports.Report(report.Event{Warning: true, Reason: report.StateNotUsed, Message: err.Error() + "; the host begins without it"})
	}
	set.store, set.fileMode = store, set.mode(set.Begun.Mode)
	facts = facts.Under(set.fileMode)
	if r := facts.Refused; r != nil && r.Former != "" {
		facts.Refused = nil // there is only the binary that was refused
	}
	wanted := facts.Wanted(set.fileMode)
	if facts.Served == "" { // as in a new pod
		facts = set.observed(context.Background(), facts, wanted)
	}
	if facts.Served != "" && !set.available(facts.Served) {
		gone := facts.Served
		facts.Served = ""
		facts = facts.Comes(gone)
	}
	first := facts.Served
	if first == "" {
		first = wanted
	}
	if !set.there(first) {
		return fmt.Errorf("mode %s: %w: %s; try: --mode NAME, or --plugin-dir DIR", first, ErrNoPlugin, missing(set.Begun, first))
	}
	if err := set.optionsRefused(context.Background(), set.Begun, first); err != nil {
		return err
	}
	if r := facts.Refused; r != nil && r.Mode != facts.Served {
		set.undone = result{change: change{From: facts.Served, To: r.Mode}, at: r.At, err: r.Why, stays: facts.Served, undone: true}
		set.last = set.undone
	}
	set.state.Facts = facts
	set.spare = set.newDataplane(first)
	set.add(set.spare)
	if dir := socketDir(set.Begun.StateDir); dir != "" { // else others' may be there too
		launch.SweepSockets(dir)
	}
	_ = set.write(true) // which is reported, and tried again
	return nil
}

// ErrNoPlugin is why a host does not begin: a node without a dataplane is served by none, and
// a host that waited for one would look as if it worked.
var ErrNoPlugin = errors.New("it has no plugin here")

// loop plans until ctx ends, and then waits for the steps that are under way.
func (r *reconciler) loop(ctx context.Context) {
	defer r.steps.Wait()
	ticker := time.NewTicker(reconcileEach)
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

// A task is a step that is done, with the dataplanes that it is about.
type task struct {
	plane.Step
	want     plane.Want
	on, with *dataplane // with: nil where the step has none
	undoes   bool       // what is wanted was refused, and this leads back
}

// reconcile begins the steps that are due, and returns after how long it is to be called again.
func (r *reconciler) reconcile(ctx context.Context, now time.Time) time.Duration {
	look := now.Sub(r.looked) >= reconcileEach
	if look {
		r.looked = now
	}
	r.findAvailable(look)
	r.mu.Lock()
	if look {
		r.relabel()
		r.lookAfter(now)
	}
	r.observe(ctx, now)
	var all []task
	var wake time.Time
	for again := true; again; {
		w, facts := r.want(), r.state.Facts
		facts.Left = slices.DeleteFunc(slices.Clone(facts.Left), func(mode string) bool { return !r.startable[mode] })
		var steps []plane.Step
		steps, wake = plane.Plan(w, facts, slices.Clone(r.state.Have), now)
		again = false
		for _, s := range steps {
			if again = s.Do == plane.Refuse; again {
				r.state.Refuse(s, w, now)
				continue
			}
			all = append(all, r.begin(s, w, now))
		}
	}
	r.lead()
	events := r.tell(r.want(), now)
	r.mu.Unlock()
	r.reportAll(events)
	unwritten := r.write(look)
	for _, b := range all {
		r.steps.Go(func() { r.perform(ctx, b, unwritten) })
	}
	if wake.IsZero() {
		return time.Hour
	}
	return max(10*time.Millisecond, wake.Sub(now))
}

// findAvailable finds out which of the modes that Plan may start have a plugin: again, or of those that are new.
func (r *reconciler) findAvailable(again bool) {
	r.mu.Lock()
	modes := slices.Clone(r.state.Facts.Left)
	if wanted := r.state.Facts.Wanted(r.fileMode); wanted != r.state.Facts.Served {
		modes = append(modes, wanted)
	}
	if !again {
		modes = slices.DeleteFunc(modes, func(mode string) bool { _, known := r.startable[mode]; return known })
	}
	r.mu.Unlock()
	for _, mode := range modes {
		there := r.available(mode)
		r.mu.Lock()
		r.startable[mode] = there
		r.mu.Unlock()
	}
}

// want returns what is to serve. A mode that has no plugin here is not wanted while another one serves. The caller has
// the mutex.
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

// buildOf returns the label of a mode's build. The caller has the mutex.
func (r *reconciler) buildOf(mode string) string {
	b, known := r.builds[mode]
	if !known {
		b = r.identify(mode)
		r.builds[mode] = b
	}
	return b.label
}

// identify returns the build that a mode has by its binary and the options in the settings.
func (r *reconciler) identify(mode string) build {
	b := build{binary: r.binaryOf(mode), options: r.Now().Plugins[mode].Options}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s", b.binary, b.options)
	b.label = fmt.Sprintf("%x", h.Sum64())
	return b
}

// binaryOf identifies the content of a mode's binary; empty: something else runs it.
func (r *reconciler) binaryOf(mode string) string {
	if r.Now().Plugins[mode].Address != "" {
		return ""
	}
	return supervise.Plugin{Path: r.found(mode).Path}.Identify()
}

// renew gives a mode a build of its own, so that a process of it takes the place of the one that runs. The caller has
// the mutex.
func (r *reconciler) renew(mode, why string) {
	b := r.identify(mode)
	b.why = why
	r.nonce++
	b.label += fmt.Sprintf("-%d", r.nonce)
	r.builds[mode] = b
}

// relabel gives a mode another build once its options have changed, or its binary has while it is refused. That the
// binary of what serves has changed is no reason: `plugin restart` is. The caller has the mutex.
func (r *reconciler) relabel() {
	for mode, b := range r.builds {
		refused := r.state.Facts.Refused
		isRefused := refused != nil && refused.Mode == mode && refused.Build == b.label
		if !bytes.Equal(r.Now().Plugins[mode].Options, b.options) || isRefused && r.binaryOf(mode) != b.binary {
			r.builds[mode] = r.identify(mode)
		}
	}
}

// lookAfter finds the instances that wait and are worth another attempt at once. The caller has the mutex.
func (r *reconciler) lookAfter(now time.Time) {
	for _, i := range r.state.Have {
		if d := r.member(i.ID); d != nil && d.look(now) && i.Doing == 0 {
			r.state.Ready(i.ID)
		}
	}
}

// startAgain starts the process of a dataplane that waits at once.
func (r *reconciler) startAgain(d *dataplane) {
	r.mu.Lock()
	r.state.Ready(d.id)
	r.mu.Unlock()
	r.changes.notify()
}

// observe notes what the processes in session are found to be. The caller has the mutex.
func (r *reconciler) observe(ctx context.Context, now time.Time) {
	for _, i := range slices.Clone(r.state.Have) {
		d := r.member(i.ID)
		if d == nil {
			continue
		}
		if o, up := d.observed(); up {
			r.state.Observe(i.ID, o, now)
		}
		i, _ = r.state.Instance(i.ID)
		drains := i.Up && (i.Role == sdk.Draining || i.Role == sdk.Yielded) && i.Doing == 0 && i.Flows != 0 && !i.Drained.IsZero()
		if drains && r.counting[i.ID] == nil {
			counting, cancel := context.WithCancel(ctx)
			r.counting[i.ID] = cancel
			r.steps.Go(func() { r.count(counting, i.ID, d) })
		}
	}
}

// begin notes that a step begins. The caller has the mutex.
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
	r.stopCounting(s.On)
	r.stopCounting(s.With)
	b.Step = r.state.Begin(s, label, now)
	if s.Do == plane.Start && s.On == 0 {
		r.bring(b.On, mode, label)
	}
	b.on, b.with = r.member(b.On), r.member(b.With)
	if s.Do == plane.Start && b.undoes && refused.Former == label && label != "" {
		b.on.pin() // or it would be the binary that was refused
	}
	return b
}

// bring adds the dataplane of a new instance: that of Begin, the one that served before what replaced it was refused,
// or a new one. The caller has the mutex.
func (r *reconciler) bring(id plane.ID, mode, label string) {
	d, former := r.spare, r.formers[mode]
	switch {
	case d != nil && d.name == mode:
		r.spare = nil
	case former != nil && former.build == label:
		d = former
		delete(r.formers, mode)
		r.add(d)
	default:
		d = r.newDataplane(mode)
		r.add(d)
	}
	d.mu.Lock()
	d.succeeds = slices.ContainsFunc(r.state.Have, func(i plane.Instance) bool { return i.ID != id && i.Mode == mode && i.Up })
	d.mu.Unlock()
	r.name(d, id, label)
}

// end notes how a step ended.
func (r *reconciler) end(b task, o plane.Outcome) {
	now := time.Now()
	r.mu.Lock()
	delete(r.phases, b.On)
	delete(r.cancels, b.On)
	if i, there := r.state.Instance(b.On); there && !i.Up && b.Do != plane.Start && b.Do != plane.Stop && b.Do != plane.Cleanup {
		o.Err, o.Answer = errors.Join(o.Err, errNoProcess), plane.Unknown // it ended meanwhile
	}
	r.state.End(b.Step, o, now)
	if l, ended := r.losses[b.On]; ended {
		r.lost(b.On, l, now)
	}
	delete(r.losses, b.On)
	if i, there := r.state.Instance(b.On); there && !i.Up {
		b.on.waits(i.Next)
	}
	if b.Do == plane.Replace && o.Err == nil && b.with != nil && b.with.isOver() {
		r.forget(b.with.name)
		r.formers[b.with.name] = b.with
		r.drop(b.with)
	}
	if b.Do == plane.Prove && o.Err == nil {
		r.forget(b.on.name)
	}
	if b.Do == plane.Stop {
		r.drop(b.on)
		b.on.closeBinary()
	}
	r.mu.Unlock()
	r.changes.notify()
}

// forget lets go of the former process of a mode, because what replaced it serves. The caller has the mutex.
func (r *reconciler) forget(mode string) {
	if former := r.formers[mode]; former != nil {
		former.closeBinary()
		delete(r.formers, mode)
	}
}

// lost notes that the process of an instance has ended. The caller has the mutex.
func (r *reconciler) lost(id plane.ID, l plane.Loss, now time.Time) {
	if cancel := r.cancels[id]; cancel != nil {
		cancel()
	}
	r.stopCounting(id)
	r.state.Lost(id, l, now)
}

// processLost is called when the process of a dataplane has ended.
func (r *reconciler) processLost(d *dataplane, l plane.Loss) {
	r.mu.Lock()
	if i, there := r.state.Instance(d.id); there && i.Doing == plane.Start {
		r.losses[d.id] = l
	} else if there {
		r.lost(d.id, l, time.Now())
		i, _ = r.state.Instance(d.id)
		d.waits(i.Next)
	}
	r.mu.Unlock()
	r.changes.notify()
}

// count notes when an instance that drains has no connection left of those that it had, unless ctx ends before: then it
// does not drain any more, or its process has ended.
func (r *reconciler) count(ctx context.Context, id plane.ID, d *dataplane) {
	err := plane.Fail("draining/drain")
	for none := 0; none < 3; { // a flow that is just beginning is not in the first count
		n, failed := d.flows(ctx)
		if none++; n > 0 || failed != nil || err != nil {
			none = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(betweenCounts):
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil {
		r.state.Drained(id)
		r.stopCounting(id)
		r.changes.notify()
	}
}

// stopCounting ends that the connections of an instance are counted. The caller has the mutex.
func (r *reconciler) stopCounting(id plane.ID) {
	if cancel := r.counting[id]; cancel != nil {
		cancel()
		delete(r.counting, id)
	}
}

// betweenCounts is between two counts of the connections that are left: no dataplane reports the last one's end.
const betweenCounts = 100 * time.Millisecond

// lead makes the instance that serves the one that the host speaks of. The caller has the mutex.
func (r *reconciler) lead() {
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
		if d := r.member(i.ID); d != nil && n >= rank {
			best, rank = d, n
		}
	}
	if best != nil {
		r.setMain(best)
	}
}

// write has the facts on the disk. It looks there if it is to, and otherwise only if they have changed since, or could
// not be written. What cannot be written is tried again each second.
func (r *reconciler) write(look bool) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	facts, before := r.state.Facts, r.unwritten
	r.mu.Unlock()
	if !look && len(before) == 0 && reflect.DeepEqual(facts, r.onDisk) {
		return nil
	}
	err := r.store.Write(facts)
	r.onDisk = facts
	var unwritten []string
	if err != nil {
		unwritten = []string{err.Error()}
	}
	r.mu.Lock()
	r.unwritten = unwritten
	r.mu.Unlock()
	switch {
	case err != nil && !slices.Equal(before, unwritten):
		r.Reports.Report(report.Event{Warning: true, Reason: report.StateNotWritten, Message: err.Error()})
	case err == nil && len(before) > 0:
		r.Reports.Report(report.Event{Reason: report.StateWritten, Message: "all that the next host must know is written down"})
	}
	return err
}

// Unwritten returns what the next host must know and could not be written down.
func (r *reconciler) Unwritten() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.unwritten)
}

// fileSays notes the mode in the config file, after that has changed. It takes the place of what was asked for.
func (r *reconciler) fileSays(mode string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped, r.dryRun, r.fileMode = byOther, nil, mode
	r.state.Facts = r.state.Facts.Asks(mode, mode, false)
}

// oneLine returns several errors in a row.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
