// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
)

// Begin decides with which dataplane to serve: that of a swap which a host before
// had under way, or the one that served before, or the one that is asked for. Where that is
// none which has a plugin here, it returns ErrNoPlugin, and where that refuses its options
// config.Problems; nothing was begun then.
func (set *Set) Begin() error {
	store, errs := intent.Open(set.Begun.StateDir, set.mode(set.Begun.Mode))
	for _, err := range errs {
		set.Reports.Report(report.Event{Warning: true, Reason: report.StateNotUsed, Message: err.Error() + "; the host begins without it"})
	}
	set.intent = store
	was := store.Intent().UnderWay()
	keeps := store.Intent().Begins(set.available)
	if was.Stage == swap.Idle && !set.there(keeps.Mode) {
		return fmt.Errorf("mode %s (%s): %w: %s; %s", keeps.Mode, set.Begun.Origin("mode"), ErrNoPlugin, missing(set.Begun, keeps.Mode),
			cmp.Or(near(set.Begun, keeps.Mode), "try: --mode NAME, or --plugin-dir DIR"))
	}
	if was.Stage == swap.Idle {
		if err := set.optionsRefused(context.Background(), set.Begun, keeps.Mode); err != nil {
			return err
		}
	}
	main := set.newDataplane(keeps.Mode, keeps.Slot)
	main.want = sdk.Active
	set.runner = swap.New(swapHost{set}, swapSide{main})
	set.add(main)
	if was.Stage != swap.Idle {
		set.resume(was)
	}
	set.endFormer()
	set.endOrphans()
	if dir := socketDir(set.Begun.StateDir); dir != "" { // else others' may be there too
		launch.SweepSockets(dir)
	}
	set.notWritten(set.writeState())
	return nil
}

// ErrNoPlugin is why a host does not begin: a node without a dataplane is served by none, and
// a host that waited for one would look as if it worked.
var ErrNoPlugin = errors.New("it has no plugin here")

// resume has the runner go on with a swap. One of the same mode is over when the
// process that is to leave has no connections of its own, or is gone: the kernel's state
// was the hand-over, and is whole.
func (set *Set) resume(was swap.Machine) {
	_, leaves := was.Parties()
	if was.Plan.Same && (!was.Plan.Overlap || !set.leftRunning(leaves)) {
		set.change(func(i intent.Intent) intent.Intent { return i.Record(swap.Machine{}) })
		return
	}
	main := set.serving()
	if was.Plan.Same { // the one that leaves may be the writer until it is made to yield
		main.mu.Lock()
		main.succeeds = true
		main.mu.Unlock()
	}
	other := set.newDataplane(leaves.Mode, leaves.Slot)
	if was.Plan.Same && was.Stage >= swap.Draining {
		other.want = sdk.Yielded
	} // else it keeps the role that the kernel shows until the swap knows that the other one serves
	set.add(other)
	set.runner.Resume(was, swapSide{main}, swapSide{other})
}

func (set *Set) leftRunning(p swap.Party) bool {
	pid, err := supervise.EndLeftover(context.Background(), StateDir(set.Begun, p.Mode), p.Slot, true)
	return err == nil && pid != 0
}

// endFormer ends the processes that a former host left and that are not needed: it ended before
// it had written down what they were for.
func (set *Set) endFormer() {
	for _, f := range Discover(set.Begun) {
		for _, slot := range []string{"", otherSlot("")} {
			if slices.ContainsFunc(set.all(), func(p *dataplane) bool { return p.name == f.Name && p.slot == slot }) {
				continue
			}
			pid, err := supervise.EndLeftover(context.Background(), StateDir(set.Begun, f.Name), slot, false)
			if err != nil {
				set.failed(swap.Stop, err)
			} else if pid != 0 {
				set.Reports.Report(report.Event{Reason: report.PluginStopped, Object: f.Name, Message: fmt.Sprintf("a former host left pid %d running, and it is not needed", pid)})
			}
		}
	}
}

// endOrphans ends the processes that a former host left and nothing speaks of, before a
// dataplane begins: one of them may hold the writer's lock.
func (set *Set) endOrphans() {
	var keep []string
	for _, p := range set.all() {
		keep = append(keep, supervise.KeptLaunch(p.process.plugin.StateDir, p.slot))
	}
	orphans, err := supervise.EndOrphans(context.Background(), set.Begun.StateDir, keep, false)
	if err != nil {
		set.Reports.Report(report.Event{Warning: true, Reason: report.PluginLeftAlone, Message: fmt.Sprintf("look for the plugins that a former host left: %v", err)})
	}
	orphans = slices.DeleteFunc(orphans, func(o supervise.Orphan) bool { return o.Other && set.named(o.Mark.Mode) == nil })
	for i, o := range orphans {
		if i == shownOrphans {
			set.Reports.Report(report.Event{Warning: true, Reason: report.PluginLeftAlone, Message: fmt.Sprintf("and %d more processes that have the mark of a plugin's launch", len(orphans)-i)})
			return
		}
		set.Reports.Report(orphaned(o))
	}
}

// shownOrphans is how many processes are reported one by one: any user can start some that
// look like it.
const shownOrphans = 20

func orphaned(o supervise.Orphan) report.Event {
	e := report.Event{Warning: true, Reason: report.PluginLeftAlone}
	if supervise.ValidName(o.Mark.Mode) { // anything may stand in an environment
		e.Object = o.Mark.Mode
	}
	switch {
	case o.Err != nil:
		e.Message = fmt.Sprintf("a former host left %s, and it does not end: %v", o, o.Err)
	case o.Other:
		e.Warning = false
		e.Message = fmt.Sprintf("%s is in this network namespace, and is left alone: %s", o, o.Alone)
	case o.Alone != "":
		e.Message = fmt.Sprintf("%s has this host's state directory, and is left alone: %s", o, o.Alone)
	default:
		e.Warning, e.Reason = false, report.PluginStopped
		e.Message = fmt.Sprintf("a former host left %s, of which nothing was written down: it was ended", o)
	}
	return e
}

// EndOrphans ends the processes that hosts with these settings left running and that no
// file of theirs speaks of, or with dryRun says which it would end. The caller holds the
// lock on the state directory.
func EndOrphans(ctx context.Context, h *config.Host, dryRun bool) ([]supervise.Orphan, error) {
	var keep []string // the files say of these: EndLeftovers ends them
	for _, f := range Discover(h) {
		for _, slot := range []string{"", otherSlot("")} {
			keep = append(keep, supervise.KeptLaunch(StateDir(h, f.Name), slot))
		}
	}
	orphans, err := supervise.EndOrphans(ctx, h.StateDir, keep, dryRun)
	return slices.DeleteFunc(orphans, func(o supervise.Orphan) bool { return o.Other }), err
}
