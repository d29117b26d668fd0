// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
)

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
		if err := set.ask(admin.SwapAsk{To: do.Mode, Force: do.Force}, set.intent.Intent().Why()); err != nil {
			set.notBegun(do.Mode, err)
		} else {
			set.change(func(i intent.Intent) intent.Intent { return i.Begun(do.Mode) })
		}
	case intent.Undo:
		set.runner.Reset(intent.ByOther)
	case intent.CleanUp:
		if err := set.cleanUp(ctx, do.Mode, main); err != nil {
			set.failed(swap.Clear, err)
		}
	case intent.Nothing:
		if v.Serves && v.Swap.Stage == swap.Idle && main.differs(set.Now()) && set.options.due(set.Now().Plugins[main.name].Options, now) {
			set.changeOptions(main)
		}
	}
}

// An attempt is a swap of a dataplane to other options. One that does not succeed is made again.
type attempt struct {
	options []byte
	next    time.Time
}

const optionsEach = 5 * time.Minute

// due reports whether a swap to options may be tried now, and notes it.
func (a *attempt) due(options []byte, now time.Time) bool {
	if bytes.Equal(a.options, options) && now.Before(a.next) {
		return false
	}
	a.options, a.next = options, now.Add(optionsEach)
	return true
}

// differs reports whether the plugin runs with other options than the settings have for it, and
// can be given those.
func (p *dataplane) differs(s *config.Host) bool {
	as := s.Plugins[p.name]
	return p.process.plugin.Address == as.Address && !bytes.Equal(p.process.supervisor.Options(), as.Options)
}

// changeOptions gives the plugin the options that the settings have for it: by another process, or where something
// else runs the plugin, by another session.
func (set *Set) changeOptions(p *dataplane) {
	if p.process.plugin.Address != "" {
		p.process.supervisor.SetOptions(set.Now().Plugins[p.name].Options)
		return
	}
	if err := set.ask(admin.SwapAsk{To: p.name}, "its options in the config file"); err != nil {
		set.notBegun(p.name, err)
	}
}

// notBegun reports why a swap cannot begin that the settings ask for.
func (set *Set) notBegun(mode string, err error) {
	set.Reports.Report(report.Event{Warning: true, Reason: report.SwapNote, Object: mode, Message: err.Error()})
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
		Drain: set.Now().Swap.DrainTimeout.Duration, Leftover: true,
	}, swapSide{d})
	if err != nil {
		set.retire(d)
		set.canary.End()
	}
	return err
}

// A record is what the next host must know. It sees to it that this is on the disk.
type record struct {
	group   *group
	reports *report.Reporter
	intent  *intent.Store

	mu        sync.Mutex // guards what follows
	unwritten []string   // what could not be written down
}

// stateGap is between two looks at it: what could not be written, or was lost, is written again.
const stateGap = time.Second

// every calls f again and again until ctx ends.
func every(ctx context.Context, gap time.Duration, f func(now time.Time)) {
	ticker := time.NewTicker(gap)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			f(now)
		}
	}
}

// change changes the intent. What cannot be written down is tried again after stateGap.
func (r *record) change(change func(intent.Intent) intent.Intent) {
	if err := r.intent.Change(change); err != nil {
		r.notWritten([]string{err.Error()})
	}
}

// writeState writes what differs from what is on the disk, and returns what it could not
// write.
func (r *record) writeState() (unwritten []string) {
	if err := r.intent.Repair(); err != nil {
		unwritten = append(unwritten, err.Error())
	}
	return unwritten
}

// notWritten notes what could not be written, and reports it when that changes.
func (r *record) notWritten(unwritten []string) {
	r.mu.Lock()
	before := r.unwritten
	r.unwritten = unwritten
	r.mu.Unlock()
	for _, why := range unwritten {
		if !slices.Contains(before, why) {
			r.reports.Report(report.Event{Warning: true, Reason: report.StateNotWritten, Message: why})
		}
	}
	if len(unwritten) == 0 && len(before) > 0 {
		r.reports.Report(report.Event{Reason: report.StateWritten, Message: "all that the next host must know is written down"})
	}
}

// Unwritten returns what the next host must know and could not be written down.
func (r *record) Unwritten() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.unwritten)
}
