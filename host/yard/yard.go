// SPDX-License-Identifier: Apache-2.0

package yard

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

// Settings are what a Yard works with.
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

// A Yard is the dataplanes of a host. Its methods are safe for concurrent use, once
// Begin has returned.
type Yard struct {
	Settings
	runner *swap.Runner
	canary *canary

	mu        sync.Mutex // guards what follows
	main      *plane     // the one that serves
	planes    []*plane   // all that run
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

// New is a Yard with no dataplane yet. Nothing happens before Begin.
func New(s Settings) *Yard {
	y := &Yard{Settings: s, canary: newCanary(s.Tracker, s.NodeName, s.Addrs)}
	y.canary.plugins = y.processes
	return y
}

// processes are those of the plugins on this machine, by their ids.
func (y *Yard) processes() (pids []int) {
	for _, p := range y.all() {
		if remote := p.process(); remote != nil && p.plugin.Address == "" {
			pids = append(pids, remote.Hello().PID)
		}
	}
	return pids
}

// serving is the dataplane that serves.
func (y *Yard) serving() *plane {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.main
}

// newPlane is a dataplane of that mode, which begins with start.
func (y *Yard) newPlane(mode, slot string) *plane {
	s := y.Now()
	p := &plane{
		name: mode, slot: slot, part: make(chan struct{}, 1), tracker: y.Tracker, reports: y.Reports, log: y.Log, book: newLogBook(),
		minGap: s.MinSyncPeriod, period: s.SyncPeriod,
		refused: y.Refused,
	}
	p.applied = func(a feed.Acked) {
		if y.serving() == p { // what another one confirms is not served yet, or no more
			y.Applied(a)
		}
	}
	p.lost = func(p *plane, why string) { y.runner.Lost(p, why) }
	p.supervised(y.plugin(mode, slot))
	return p
}

// Begin decides with which dataplane to serve: that of a swap which a host before
// had under way, or the one that served before, or the one that is asked for.
func (y *Yard) Begin() {
	file := filepath.Join(y.Begun.StateDir, "swap.json")
	was, err := swap.Remember(file)
	if err != nil {
		y.Reports.Report(report.Event{Warning: true, Reason: report.StateNotUsed, Message: err.Error() + "; the host begins without it"})
	}
	y.noted = y.remembered()
	y.heed(y.Begun.Mode)
	y.wanted = y.noted.wanted(y.Begun.Mode)
	var keeps, leaves swap.Party
	keeps.Mode, keeps.Slot = y.noted.serving(y.Begun.Mode, y.there)
	if was.Stage != swap.Idle {
		keeps, leaves = was.Parties()
	}
	main := y.newPlane(keeps.Mode, keeps.Slot)
	main.want = sdk.Active
	y.runner = swap.New(lever{y}, file, main)
	y.add(main)
	if was.Stage != swap.Idle {
		y.resume(was, leaves)
	}
	y.endStrays()
	y.endOrphans()
	if dir := socketDir(y.Begun.StateDir); dir != "" { // else others' may be there too
		wire.SweepSockets(dir)
	}
}

// resume has the runner go on with a swap. One of the same mode is over when the
// process that is to leave has no connections of its own, or is gone: the kernel's state
// was the hand-over, and is whole.
func (y *Yard) resume(was swap.Machine, leaves swap.Party) {
	if was.Plan.Same && (!was.Plan.Overlap || !y.leftover(leaves)) {
		if err := os.Remove(filepath.Join(y.Begun.StateDir, "swap.json")); err != nil {
			y.failed(swap.Finish, err)
		}
		return
	}
	if was.Plan.Same { // the one that leaves may be the writer until it hears that it does
		main := y.serving()
		main.mu.Lock()
		main.succeeds = true
		main.mu.Unlock()
	}
	other := y.newPlane(leaves.Mode, leaves.Slot)
	if was.Plan.Same && was.Stage >= swap.Draining {
		other.want = sdk.Yielded
	} // else it keeps the role that the kernel shows until the swap knows that the other one serves
	y.add(other)
	y.runner.Resume(was, y.serving(), other)
}

// add has the yard know of p. The first one is the one that serves.
func (y *Yard) add(p *plane) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.main == nil {
		y.main = p
	}
	y.planes = append(y.planes, p)
	if y.leaves {
		p.supervisor.Leave()
	}
}

// there reports whether a mode has a plugin: a binary, or an address.
func (y *Yard) there(mode string) bool {
	if y.Now().Plugins[mode].Address != "" {
		return true // whether somebody listens there shows when it is connected to
	}
	return slices.ContainsFunc(Discover(y.Begun), func(f supervise.Found) bool { return f.Name == mode && f.Err == nil })
}

// Run runs the dataplanes, and swaps, until ctx ends.
func (y *Yard) Run(ctx context.Context) error {
	y.mu.Lock()
	y.life = ctx
	begun := slices.Clone(y.planes)
	y.mu.Unlock()
	for _, p := range begun {
		p.start(ctx)
	}
	var parts sync.WaitGroup
	parts.Go(func() { y.runner.Run(ctx) })
	parts.Go(func() { y.follow(ctx) })
	parts.Go(func() { y.keepState(ctx) })
	parts.Go(func() { y.surveys(ctx) })
	parts.Wait()
	y.canary.end()
	for _, p := range y.all() {
		p.wait()
	}
	return nil
}

// note writes down that p serves, if it still does: the next host begins with it.
func (y *Yard) note(p *plane) {
	y.write(func(f *inForce) {
		if y.main != p {
			return
		}
		f.Serving, f.Slot = p.name, p.slot
		f.Left = slices.DeleteFunc(slices.Clone(f.Left), func(mode string) bool { return mode == p.name })
	})
}

func (y *Yard) all() []*plane {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.Clone(y.planes)
}

// Leave has the processes outlive the host. It may be called before Begin, too.
func (y *Yard) Leave() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.leaves = true
	for _, p := range y.planes {
		p.supervisor.Leave()
	}
}

// Reload follows a change of the config file.
func (y *Yard) Reload(c config.Change) error {
	var errs []error
	for _, p := range y.all() {
		errs = append(errs, p.setPeriods(c.Host.MinSyncPeriod, c.Host.SyncPeriod))
	}
	if slices.Contains(c.Applied, "mode") {
		y.heed(c.Host.Mode)
		y.mu.Lock()
		y.owed, y.wanted = c.Host.Mode, ""
		y.mu.Unlock()
		y.settleUp()
	}
	return errors.Join(errs...)
}

// ask begins a swap to mode.
func (y *Yard) ask(mode, why string, force bool) error {
	main, s := y.serving(), y.Now()
	p := swap.Plan{
		From: main.name, To: mode, Same: main.name == mode, Why: why, Force: force,
		Drain: s.Swap.DrainTimeout, Stay: s.Swap.OnFailure == "stay", FromSlot: main.slot,
		FromDown: main.name != mode && !main.serves(),
	}
	if p.Same {
		p.ToSlot = otherSlot(main.slot)
		p.Overlap = slices.Contains(main.supervisor.Status().Description.Limits, sdk.LimitDiesWithProcess)
	}
	err := y.runner.Ask(p)
	if err != nil {
		y.Reports.Report(report.Event{Warning: true, Reason: report.SwapNote, Object: mode, Message: err.Error()})
	}
	return err
}

// named is the dataplane of that mode that runs; nil: none does.
func (y *Yard) named(mode string) *plane {
	if main := y.serving(); main.name == mode {
		return main
	}
	for _, p := range y.all() {
		if p.name == mode {
			return p
		}
	}
	return nil
}

func (y *Yard) dropped(d *plane) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.planes = slices.DeleteFunc(y.planes, func(p *plane) bool { return p == d })
}
