// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
)

// This file is about the way to the mode that is asked for.

// followEach is how often the intent is followed where nothing has changed: for what is due
// by time alone.
const followEach = time.Second

// follow does what the intent says to do next, until ctx ends.
func (set *Set) follow(ctx context.Context) {
	ticker := time.NewTicker(followEach)
	defer ticker.Stop()
	for {
		changed := set.changes.wait()
		set.next(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-ticker.C:
		}
	}
}

// next notes the dataplane that serves, for the hosts to come, and begins what the intent
// says to do.
func (set *Set) next(ctx context.Context, now time.Time) {
	main := set.serving()
	v := intent.View{
		Mode: main.name, Synced: main.synced(), Coming: main.status().Coming(), Serves: main.serves(),
		Swap: set.runner.Machine(), Available: make(map[string]bool),
	}
	for _, mode := range set.intent.Intent().Candidates() {
		v.Available[mode] = set.available(mode)
	}
	if v.Synced {
		set.note(main)
	}
	if v.Swap.Stage == swap.Idle {
		set.keepActive(ctx, main)
	}
	var do intent.Action
	set.change(func(i intent.Intent) (next intent.Intent) { next, do = i.Next(v, now); return next })
	switch do.Kind {
	case intent.Change:
		if set.ask(do.Mode, "the mode in the config file", false) == nil {
			set.change(func(i intent.Intent) intent.Intent { return i.Begun(do.Mode) })
		}
	case intent.CleanUp:
		if err := set.cleanUp(ctx, do.Mode, main); err != nil {
			set.failed(swap.Clear, err)
		}
	}
}

// note writes down that p serves, if it still does: the next host begins with it.
func (set *Set) note(p *dataplane) {
	set.change(func(i intent.Intent) intent.Intent {
		if set.serving() != p {
			return i
		}
		return i.Serves(p.name, p.slot)
	})
}

// keepActive makes the dataplane that the host goes on with Active, while no swap is under
// way. After a swap that could not be undone it may be one that was never made Active.
func (set *Set) keepActive(ctx context.Context, main *dataplane) {
	main.mu.Lock()
	want := main.want
	main.mu.Unlock()
	if want == sdk.Active || main != set.serving() {
		return
	}
	limited, cancel := context.WithTimeout(ctx, keepActiveLimit)
	defer cancel()
	if err := (swapSide{main}).SetRole(limited, sdk.Active); err != nil {
		set.failed(swap.Promote, err)
	}
}

const keepActiveLimit = 5 * time.Second

// cleanUp has the runner drain and clean up what a mode left, beside main. Its process keeps
// the role that the kernel shows until main has passed the canary.
func (set *Set) cleanUp(ctx context.Context, mode string, main *dataplane) error {
	if err := set.canary.Begin(); err != nil {
		return err
	}
	d := set.newDataplane(mode, "")
	set.join(d)
	err := set.runner.Retire(swap.Plan{
		From: mode, To: main.name, ToSlot: main.slot, Why: "an earlier swap left rules of " + mode,
		Drain: set.Now().Swap.DrainTimeout, Leftover: true,
	}, swapSide{d})
	if err != nil {
		set.retire(d)
		set.canary.End()
	}
	return err
}
