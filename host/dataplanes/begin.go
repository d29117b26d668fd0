// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"

	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/report"
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
	if store.Intent().Serving == "" { // as in a new pod
		mode, left := set.foundServing(context.Background(), keeps.Mode)
		keeps.Mode = mode
		set.change(func(i intent.Intent) intent.Intent { i.Left = left; return i })
	}
	if was.Stage == swap.Idle && !set.there(keeps.Mode) {
		return fmt.Errorf("mode %s: %w: %s; try: --mode NAME, or --plugin-dir DIR", keeps.Mode, ErrNoPlugin, missing(set.Begun, keeps.Mode))
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
	if dir := socketDir(set.Begun.StateDir); dir != "" { // else others' may be there too
		launch.SweepSockets(dir)
	}
	set.notWritten(set.writeState())
	return nil
}

// ErrNoPlugin is why a host does not begin: a node without a dataplane is served by none, and
// a host that waited for one would look as if it worked.
var ErrNoPlugin = errors.New("it has no plugin here")

// resume has the runner go on with a swap. One of the same mode is over: the process that was to leave has ended with
// its host.
func (set *Set) resume(was swap.Machine) {
	_, leaves := was.Parties()
	if was.Plan.Same {
		set.change(func(i intent.Intent) intent.Intent { return i.Record(swap.Machine{}) })
		return
	}
	main := set.serving()
	other := set.newDataplane(leaves.Mode, leaves.Slot) // it keeps the role that the kernel shows until the swap knows that the other one serves
	set.add(other)
	set.runner.Resume(was, swapSide{main}, swapSide{other})
}
