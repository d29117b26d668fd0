// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
)

// This file is about the way to the mode that is asked for.

// follow notes the dataplane that serves, for the hosts to come, and goes to the mode that
// is asked for, if that is another: it is after a change of the file while no host ran, or
// where a host ended before its swap was written down. From then on it goes to the file's
// mode whenever nothing is in the way any more. A dataplane that does not come up is not
// waited for: another mode may be asked for because of that.
func (set *Set) follow(ctx context.Context) {
	ticker := time.NewTicker(5 * glance)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		main := set.serving()
		whole := main.whole()
		if whole {
			set.note(main)
		}
		set.keepActive(ctx, main)
		if whole || !main.supervisor.Status().Coming() {
			set.begun()
		}
		now := time.Now()
		set.retryDue(now)
		set.settleUp()
		set.cleanLeft(ctx, now)
	}
}

// keepActive makes the dataplane that the host goes on with Active. After a swap that could
// not be undone it may be one that was never told to be.
func (set *Set) keepActive(ctx context.Context, main *dataplane) {
	main.mu.Lock()
	want := main.want
	main.mu.Unlock()
	if want == sdk.Active || set.runner.Machine().Stage != swap.Idle {
		return
	}
	limited, cancel := context.WithTimeout(ctx, keepActiveLimit)
	defer cancel()
	if err := main.SetRole(limited, sdk.Active); err != nil {
		set.failed(swap.Promote, err)
	}
}

const keepActiveLimit = 5 * time.Second

// begun has the mode that was asked for when the host began owed, once, if nobody has asked
// for another since.
func (set *Set) begun() {
	set.mu.Lock()
	wanted := set.wanted
	set.mu.Unlock()
	if wanted == "" {
		return
	}
	there := set.there(wanted)
	set.mu.Lock()
	defer set.mu.Unlock()
	if there && set.wanted == wanted {
		set.owed = wanted
	}
	set.wanted = ""
}

// settleUp begins the swap to the mode that is owed, as soon as it can be.
func (set *Set) settleUp() {
	set.mu.Lock()
	mode, serves := set.owed, set.main.name
	set.mu.Unlock()
	if mode == "" {
		return
	}
	there, free := heads(set.runner.Machine(), serves, mode)
	if there || free && set.ask(mode, "the mode in the config file", false) == nil {
		set.owe(mode, "")
	}
}

// heads says how a swap that may be under way stands to a mode: it is there already, or
// the way to it is free.
func heads(m swap.Machine, serves, mode string) (there, free bool) {
	switch m.Stage {
	case swap.Idle:
		return serves == mode, true
	case swap.Draining:
		return m.Plan.To == mode, m.Plan.From == mode && m.Undo == "" // one that failed is cleared away first
	case swap.Clearing:
		return m.Plan.To == mode, false
	}
	return false, false // it may be undone yet
}

// owe notes another mode as owed, if that is still the one before.
func (set *Set) owe(before, mode string) {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.owed == before {
		set.owed = mode
	}
}
