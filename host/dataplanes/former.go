// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
)

// This file is about the processes that former hosts left running.

// leftRunning reports whether a former host left that process running.
func (set *Set) leftRunning(p swap.Party) bool {
	pid, err := supervise.EndLeftover(context.Background(), stateDir(set.Begun, p.Mode), p.Slot, true)
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
			pid, err := supervise.EndLeftover(context.Background(), stateDir(set.Begun, f.Name), slot, false)
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

// orphaned returns the event of what became of an orphan.
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
	var keep []string // the files say of these, and EndLeftovers ends them
	for _, f := range Discover(h) {
		for _, slot := range []string{"", otherSlot("")} {
			keep = append(keep, supervise.KeptLaunch(stateDir(h, f.Name), slot))
		}
	}
	orphans, err := supervise.EndOrphans(ctx, h.StateDir, keep, dryRun)
	return slices.DeleteFunc(orphans, func(o supervise.Orphan) bool { return o.Other }), err
}
