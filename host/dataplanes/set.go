// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/report"
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

	Pods func(ctx context.Context, namespace string) ([]Pod, error) // that its EndpointSlices name

	Applied func(feed.Acked) // called for each update that a dataplane confirmed
	Refused func()           // called when an update failed altogether
}

// failed reports that a part of a swap failed, and that the host goes on.
func (s Settings) failed(a swap.Action, err error) {
	s.Reports.Report(report.Event{Warning: true, Reason: report.SwapNote, Message: fmt.Sprintf("%s: %v", a, err)})
}

// A Set is the dataplanes of a host. Its methods are safe for concurrent use, once
// Begin has returned.
type Set struct {
	installed
	*group
	*record
	*survey
	*chooser
	runner *swap.Runner
	canary *canary.Canary

	options attempt // only follow uses it

}

// New returns a Set with no dataplane yet. Nothing happens before Begin.
func New(s Settings) *Set {
	in, g := installed{s}, &group{}
	set := &Set{
		installed: in, group: g,
		record:  &record{group: g, reports: s.Reports},
		survey:  &survey{plugins: in, running: g},
		chooser: &chooser{plugins: in},
	}
	set.canary = canary.New(s.Tracker, s.NodeName, s.Addrs, set.ownProcesses)
	return set
}

// ownProcesses returns those of the plugins on this machine, by their ids.
func (set *Set) ownProcesses() (pids []int) {
	for _, p := range set.all() {
		if remote := p.remote(); remote != nil && p.process.plugin.Address == "" {
			pids = append(pids, remote.Hello().PID)
		}
	}
	return pids
}

// newDataplane returns one of that mode, which begins with start.
func (set *Set) newDataplane(mode, slot string) *dataplane {
	s := set.Now()
	p := &dataplane{
		name: mode, slot: slot, tracker: set.Tracker, reports: set.Reports, log: set.Log,
		periods:       periods{s.MinSyncPeriod.Duration, s.SyncPeriod.Duration},
		roleSemaphore: make(chan struct{}, 1),
		hooks: hooks{
			applied: set.applied,
			refused: set.Refused,
			lost:    func(p *dataplane, why string) { set.runner.Lost(swapSide{p}, why) },
			changed: set.changes.notify,
		},
	}
	p.run(set.plugin(mode))
	return p
}

// applied passes on what the dataplane that serves has confirmed: what another one confirms
// is not served yet, or no more.
func (set *Set) applied(p *dataplane, a feed.Acked) {
	if set.serving() == p {
		set.Applied(a)
	}
}

// Run runs the dataplanes, and swaps, until ctx ends.
func (set *Set) Run(ctx context.Context) error {
	set.group.run(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { set.runner.Run(ctx) })
	parts.Go(func() { set.follow(ctx) })
	parts.Go(func() { every(ctx, stateGap, func(time.Time) { set.notWritten(set.writeState()) }) })
	parts.Go(func() { every(ctx, time.Second, func(now time.Time) { set.look(ctx, now) }) })
	parts.Wait()
	set.canary.End()
	for _, p := range set.all() {
		p.process.wait()
		p.process.supervisor.Close()
	}
	return nil
}

// Reload follows a change of the config file.
func (set *Set) Reload(c config.State) error {
	var errs []error
	for _, p := range set.all() {
		errs = append(errs, p.setPeriods(c.Host.MinSyncPeriod.Duration, c.Host.SyncPeriod.Duration))
	}
	if slices.Contains(c.Applied, "mode") {
		mode := set.mode(c.Host.Mode)
		set.change(func(i intent.Intent) intent.Intent { return i.FileSays(mode) })
	}
	set.changes.notify()
	return errors.Join(errs...)
}

// A group is the dataplanes that a host runs: the one that serves, and those that come and
// go beside it.
type group struct {
	changes notifier // of a dataplane, of a swap, or of the intent

	mu      sync.Mutex   // guards what follows; no call into intent is made with it
	main    *dataplane   // the one that serves
	members []*dataplane // all that run
	life    context.Context
}

// run starts the members, and says for how long those that come later are to run.
func (g *group) run(ctx context.Context) {
	g.mu.Lock()
	g.life = ctx
	begun := slices.Clone(g.members)
	g.mu.Unlock()
	for _, p := range begun {
		p.start(ctx)
	}
}

// join adds p to a group that runs, and starts it.
func (g *group) join(p *dataplane) {
	g.add(p)
	g.mu.Lock()
	life := g.life
	g.mu.Unlock()
	p.start(life)
}

// retire stops p, and takes it out of the group.
func (g *group) retire(p *dataplane) {
	p.process.stop()
	g.drop(func(d *dataplane) bool { return d == p })
}

// drop takes those out of the group that over says it of.
func (g *group) drop(over func(*dataplane) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = slices.DeleteFunc(g.members, func(p *dataplane) bool {
		if !over(p) {
			return false
		}
		p.process.supervisor.Close()
		return true
	})
}

// lead makes p the one that serves.
func (g *group) lead(p *dataplane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.main = p
}

func (g *group) serving() *dataplane {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.main
}

func (g *group) all() []*dataplane {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members)
}

// besides returns the dataplane besides the one that serves; nil: there is none.
func (g *group) besides() *dataplane {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.members {
		if p != g.main {
			return p
		}
	}
	return nil
}

// named returns the dataplane of that mode that runs; nil: none does.
func (g *group) named(mode string) *dataplane {
	if main := g.serving(); main.name == mode {
		return main
	}
	for _, p := range g.all() {
		if p.name == mode {
			return p
		}
	}
	return nil
}

// add adds p. The first one is the one that serves.
func (g *group) add(p *dataplane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.main == nil {
		g.main = p
	}
	g.members = append(g.members, p)
}

// A notifier wakes whatever waits for the next change of something. The zero value is ready.
type notifier struct {
	mu   sync.Mutex    // guards next
	next chan struct{} // closed with the next change; nil: nothing waits for it
}

// wait is closed with the next change. Code that looks at what changes gets it before, so that
// no change comes between.
func (n *notifier) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}
