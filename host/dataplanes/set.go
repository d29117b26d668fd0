// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// Settings are what a Set works with.
type Settings struct {
	Begun    *config.Host        // the settings the host began with; a restart changes what only they say
	Now      func() *config.Host // those in force
	NodeName string
	Addrs    []netip.Addr // of this machine, that others can reach it by

	Tracker *track.Tracker
	Reports *report.Reporter
	Log     hclog.Logger

	Applied func(feed.Acked) // called for each update that a dataplane confirmed
	Refused func()           // called when an update failed altogether
}

// A Set is the dataplanes of a host. Its methods are safe for concurrent use, once
// Begin has returned.
type Set struct {
	Settings
	runner *swap.Runner
	canary *canary

	mu        sync.Mutex   // guards what follows
	main      *dataplane   // the one that serves
	members   []*dataplane // all that run
	life      context.Context
	noted     inForce      // as written down last
	wanted    string       // the mode that was asked for when the host began; empty: somebody has asked since
	leaves    bool         // the processes are to outlive the host
	owed      string       // the file's mode, where another swap is in its way; empty: none
	unwritten []string     // what the next host must know and could not be written down
	undone    swap.Outcome // of the last change of mode, where it was undone; zero: it was made
	retry     retry        // of a change of mode that was undone while nothing in session served

	nextClean  time.Time // when what an earlier swap left may be cleaned up
	unattended []string  // what serves while the mode in use does not, as the last survey found
	nextSurvey time.Time
}

// New is a Set with no dataplane yet. Nothing happens before Begin.
func New(s Settings) *Set {
	set := &Set{Settings: s, canary: newCanary(s.Tracker, s.NodeName, s.Addrs)}
	set.canary.plugins = set.processes
	return set
}

// processes are those of the plugins on this machine, by their ids.
func (set *Set) processes() (pids []int) {
	for _, p := range set.all() {
		if remote := p.process(); remote != nil && p.plugin.Address == "" {
			pids = append(pids, remote.Hello().PID)
		}
	}
	return pids
}

// serving is the dataplane that serves.
func (set *Set) serving() *dataplane {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.main
}

// newDataplane is a dataplane of that mode, which begins with start.
func (set *Set) newDataplane(mode, slot string) *dataplane {
	s := set.Now()
	p := &dataplane{
		name: mode, slot: slot, part: make(chan struct{}, 1), tracker: set.Tracker, reports: set.Reports, log: set.Log, book: newLogBook(),
		minGap: s.MinSyncPeriod, period: s.SyncPeriod,
		refused: set.Refused,
	}
	p.applied = func(a feed.Acked) {
		if set.serving() == p { // what another one confirms is not served yet, or no more
			set.Applied(a)
		}
	}
	p.lost = func(p *dataplane, why string) { set.runner.Lost(p, why) }
	p.supervised(set.plugin(mode, slot))
	return p
}

// Begin decides with which dataplane to serve: that of a swap which a host before
// had under way, or the one that served before, or the one that is asked for.
func (set *Set) Begin() {
	file := filepath.Join(set.Begun.StateDir, "swap.json")
	was, err := swap.Remember(file)
	if err != nil {
		set.Reports.Report(report.Event{Warning: true, Reason: report.StateNotUsed, Message: err.Error() + "; the host begins without it"})
	}
	set.noted = set.remembered()
	set.heed(set.Begun.Mode)
	set.wanted = set.noted.wanted(set.Begun.Mode)
	var keeps, leaves swap.Party
	keeps.Mode, keeps.Slot = set.noted.serving(set.Begun.Mode, set.there)
	if was.Stage != swap.Idle {
		keeps, leaves = was.Parties()
	}
	main := set.newDataplane(keeps.Mode, keeps.Slot)
	main.want = sdk.Active
	set.runner = swap.New(swapHost{set}, file, main)
	set.add(main)
	if was.Stage != swap.Idle {
		set.resume(was, leaves)
	}
	set.endFormer()
	set.endOrphans()
	if dir := socketDir(set.Begun.StateDir); dir != "" { // else others' may be there too
		wire.SweepSockets(dir)
	}
}

// resume has the runner go on with a swap. One of the same mode is over when the
// process that is to leave has no connections of its own, or is gone: the kernel's state
// was the hand-over, and is whole.
func (set *Set) resume(was swap.Machine, leaves swap.Party) {
	if was.Plan.Same && (!was.Plan.Overlap || !set.leftover(leaves)) {
		if err := os.Remove(filepath.Join(set.Begun.StateDir, "swap.json")); err != nil {
			set.failed(swap.Finish, err)
		}
		return
	}
	if was.Plan.Same { // the one that leaves may be the writer until it hears that it does
		main := set.serving()
		main.mu.Lock()
		main.succeeds = true
		main.mu.Unlock()
	}
	other := set.newDataplane(leaves.Mode, leaves.Slot)
	if was.Plan.Same && was.Stage >= swap.Draining {
		other.want = sdk.Yielded
	} // else it keeps the role that the kernel shows until the swap knows that the other one serves
	set.add(other)
	set.runner.Resume(was, set.serving(), other)
}

// add has the set know of p. The first one is the one that serves.
func (set *Set) add(p *dataplane) {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.main == nil {
		set.main = p
	}
	set.members = append(set.members, p)
	if set.leaves {
		p.supervisor.Leave()
	}
}

// there reports whether a mode has a plugin: a binary, or an address.
func (set *Set) there(mode string) bool {
	if set.Now().Plugins[mode].Address != "" {
		return true // whether somebody listens there shows when it is connected to
	}
	return slices.ContainsFunc(Discover(set.Begun), func(f supervise.Found) bool { return f.Name == mode && f.Err == nil })
}

// Run runs the dataplanes, and swaps, until ctx ends.
func (set *Set) Run(ctx context.Context) error {
	set.mu.Lock()
	set.life = ctx
	begun := slices.Clone(set.members)
	set.mu.Unlock()
	for _, p := range begun {
		p.start(ctx)
	}
	var parts sync.WaitGroup
	parts.Go(func() { set.runner.Run(ctx) })
	parts.Go(func() { set.follow(ctx) })
	parts.Go(func() { set.keepState(ctx) })
	parts.Go(func() { set.surveys(ctx) })
	parts.Wait()
	set.canary.end()
	for _, p := range set.all() {
		p.wait()
	}
	return nil
}

// note writes down that p serves, if it still does: the next host begins with it.
func (set *Set) note(p *dataplane) {
	set.write(func(f *inForce) {
		if set.main != p {
			return
		}
		f.Serving, f.Slot = p.name, p.slot
		f.Left = slices.DeleteFunc(slices.Clone(f.Left), func(mode string) bool { return mode == p.name })
	})
}

func (set *Set) all() []*dataplane {
	set.mu.Lock()
	defer set.mu.Unlock()
	return slices.Clone(set.members)
}

// Leave has the processes outlive the host. It may be called before Begin, too.
func (set *Set) Leave() {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.leaves = true
	for _, p := range set.members {
		p.supervisor.Leave()
	}
}

// Reload follows a change of the config file.
func (set *Set) Reload(c config.Change) error {
	var errs []error
	for _, p := range set.all() {
		errs = append(errs, p.setPeriods(c.Host.MinSyncPeriod, c.Host.SyncPeriod))
	}
	if slices.Contains(c.Applied, "mode") {
		set.heed(c.Host.Mode)
		set.mu.Lock()
		set.owed, set.wanted = c.Host.Mode, ""
		set.mu.Unlock()
		set.settleUp()
	}
	return errors.Join(errs...)
}

// ask begins a swap to mode.
func (set *Set) ask(mode, why string, force bool) error {
	main, s := set.serving(), set.Now()
	p := swap.Plan{
		From: main.name, To: mode, Same: main.name == mode, Why: why, Force: force,
		Drain: s.Swap.DrainTimeout, Stay: s.Swap.OnFailure == "stay", FromSlot: main.slot,
		FromDown: main.name != mode && !main.serves(),
	}
	if p.Same {
		p.ToSlot = otherSlot(main.slot)
		p.Overlap = slices.Contains(main.supervisor.Status().Description.Limits, sdk.LimitDiesWithProcess)
	}
	err := set.runner.Ask(p)
	if err != nil {
		set.Reports.Report(report.Event{Warning: true, Reason: report.SwapNote, Object: mode, Message: err.Error()})
	}
	return err
}

// named is the dataplane of that mode that runs; nil: none does.
func (set *Set) named(mode string) *dataplane {
	if main := set.serving(); main.name == mode {
		return main
	}
	for _, p := range set.all() {
		if p.name == mode {
			return p
		}
	}
	return nil
}

func (set *Set) dropped(d *dataplane) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.members = slices.DeleteFunc(set.members, func(p *dataplane) bool { return p == d })
}
