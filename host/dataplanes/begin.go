// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
)

// Begin decides with which dataplane to serve: that of a swap which a host before
// had under way, or the one that served before, or the one that is asked for.
func (set *Set) Begin() {
	store, errs := intent.Open(set.Begun.StateDir, set.Begun.Mode)
	for _, err := range errs {
		set.Reports.Report(report.Event{Warning: true, Reason: report.StateNotUsed, Message: err.Error() + "; the host begins without it"})
	}
	set.intent = store
	was := store.Intent().UnderWay()
	keeps := store.Intent().Begins(set.available)
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
}

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
