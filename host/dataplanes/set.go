// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/host/track"
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
	runner  *swap.Runner
	canary  *canary.Canary
	intent  *intent.Store
	changes notifier // of a dataplane, of a swap, or of the intent

	mu        sync.Mutex   // guards what follows; no call into intent is made with it
	main      *dataplane   // the one that serves
	members   []*dataplane // all that run
	life      context.Context
	leaves    bool     // the processes are to outlive the host
	unwritten []string // what the next host must know and could not be written down
	survey    survey
}

// New is a Set with no dataplane yet. Nothing happens before Begin.
func New(s Settings) *Set {
	set := &Set{Settings: s}
	set.canary = canary.New(s.Tracker, s.NodeName, s.Addrs, set.ownProcesses)
	return set
}

// ownProcesses are those of the plugins on this machine, by their ids.
func (set *Set) ownProcesses() (pids []int) {
	for _, p := range set.all() {
		if remote := p.remote(); remote != nil && p.process.plugin.Address == "" {
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

func (set *Set) all() []*dataplane {
	set.mu.Lock()
	defer set.mu.Unlock()
	return slices.Clone(set.members)
}

// besides is the dataplane besides the one that serves; nil: there is none.
func (set *Set) besides() *dataplane {
	set.mu.Lock()
	defer set.mu.Unlock()
	for _, p := range set.members {
		if p != set.main {
			return p
		}
	}
	return nil
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

// newDataplane is one of that mode, which begins with start.
func (set *Set) newDataplane(mode, slot string) *dataplane {
	s := set.Now()
	p := &dataplane{
		name: mode, slot: slot, tracker: set.Tracker, reports: set.Reports, log: set.Log,
		periods:  periods{s.MinSyncPeriod, s.SyncPeriod},
		roleTurn: make(chan struct{}, 1),
		hooks: hooks{
			applied: set.applied,
			refused: set.Refused,
			lost:    func(p *dataplane, why string) { set.runner.Lost(swapSide{p}, why) },
			changed: set.changes.notify,
		},
	}
	p.run(set.plugin(mode, slot))
	return p
}

// applied passes on what the dataplane that serves has confirmed: what another one confirms
// is not served yet, or no more.
func (set *Set) applied(p *dataplane, a feed.Acked) {
	if set.serving() == p {
		set.Applied(a)
	}
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
		p.process.supervisor.Leave()
	}
}

func (set *Set) drop(d *dataplane) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.members = slices.DeleteFunc(set.members, func(p *dataplane) bool { return p == d })
}

// available reports whether a mode has a plugin: a binary, or an address.
func (set *Set) available(mode string) bool {
	if set.Now().Plugins[mode].Address != "" {
		return true // whether something listens there shows when it is connected to
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
	set.canary.End()
	for _, p := range set.all() {
		p.process.wait()
	}
	if err := set.intent.Leave(); err != nil {
		set.Log.Warn(err.Error())
	}
	return nil
}

// Leave has the processes outlive the host. It may be called before Begin, too.
func (set *Set) Leave() {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.leaves = true
	for _, p := range set.members {
		p.process.supervisor.Leave()
	}
}

// Reload follows a change of the config file.
func (set *Set) Reload(c config.Change) error {
	var errs []error
	for _, p := range set.all() {
		errs = append(errs, p.setPeriods(c.Host.MinSyncPeriod, c.Host.SyncPeriod))
	}
	if slices.Contains(c.Applied, "mode") {
		set.change(func(i intent.Intent) intent.Intent { return i.FileSays(c.Host.Mode) })
	}
	return errors.Join(errs...)
}

// change changes the intent. What cannot be written down keepState tries again.
func (set *Set) change(change func(intent.Intent) intent.Intent) {
	if err := set.intent.Change(change); err != nil {
		set.notWritten([]string{err.Error()})
	}
	set.changes.notify()
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
		p.Overlap = diesWithProcess(main.status().Description)
	}
	err := set.runner.Ask(p)
	if err != nil {
		set.Reports.Report(report.Event{Warning: true, Reason: report.SwapNote, Object: mode, Message: err.Error()})
	}
	return err
}

// otherSlot is that of a second process of one mode.
func otherSlot(slot string) string {
	if slot == "" {
		return "b"
	}
	return ""
}
