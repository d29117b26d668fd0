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
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
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

	Interfaces func() map[netip.Addr]string // the node's addresses, each with its interface, but for those of a dataplane

	Applied func(feed.Acked) // called for each update that a dataplane confirmed
	Refused func()           // called when an update failed altogether
}

// failed reports that a part of a swap failed, and that the host goes on.
func (s Settings) failed(part string, err error) {
	s.Reports.Report(report.Event{Warning: true, Reason: report.SwapNote, Message: fmt.Sprintf("%s: %v", part, err)})
}

// A Set is the dataplanes of a host. Its methods are safe for concurrent use, once
// Begin has returned.
type Set struct {
	*reconciler
	*survey
	*chooser
}

// New returns a Set with no dataplane yet. Nothing happens before Begin.
func New(s Settings) *Set {
	in, g := installed{s}, &group{}
	set := &Set{
		reconciler: &reconciler{
			installed: in, group: g, startable: make(map[string]bool), builds: make(map[string]build),
			formers: make(map[string]*dataplane), losses: make(map[plane.ID]plane.Loss), phases: make(map[plane.ID]string), cancels: make(map[plane.ID]context.CancelFunc),
			counting: make(map[plane.ID]context.CancelFunc), failures: make(map[string]string),
		},
		survey:  &survey{plugins: in, running: g},
		chooser: &chooser{plugins: in},
	}
	set.canary = canary.New(s.Tracker, s.NodeName, s.Addrs, g.ownProcesses)
	return set
}

// ownProcesses returns those of the plugins on this machine, by their ids.
func (g *group) ownProcesses() (pids []int) {
	for _, p := range g.all() {
		if remote := p.remote(); remote != nil && p.plugin.Address == "" {
			pids = append(pids, remote.Hello().PID)
		}
	}
	return pids
}

// newDataplane returns one of that mode, which has no process yet.
func (r *reconciler) newDataplane(mode string) *dataplane {
	s := r.Now()
	return &dataplane{
		name: mode, plugin: r.plugin(mode), tracker: r.Tracker, reports: r.Reports, log: r.Log, logged: newPluginLog(mode, r.Log), drops: &r.drops,
		periods: periods{s.MinSyncPeriod.Duration, s.SyncPeriod.Duration},
		options: s.Plugins[mode].Options,
		hooks:   hooks{applied: r.applied, refused: r.Refused, lost: r.processLost, changed: r.changes.notify},
	}
}

// applied passes on what the dataplane that serves has confirmed: what another one confirms
// is not served yet, or no more.
func (r *reconciler) applied(p *dataplane, a feed.Acked) {
	if r.serving() == p {
		r.Applied(a)
	}
}

// Run runs the dataplanes, and swaps, until ctx ends.
func (set *Set) Run(ctx context.Context) error {
	set.run(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { set.loop(ctx) })
	parts.Go(func() { every(ctx, time.Second, func(now time.Time) { set.look(ctx, now) }) })
	parts.Wait()
	set.canary.End()
	for _, p := range set.formers {
		p.closeBinary()
	}
	for _, p := range set.all() {
		p.wait()
		p.closeBinary()
	}
	return nil
}

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

// Reload follows a change of the config file.
func (set *Set) Reload(c config.State) error {
	var errs []error
	for _, p := range set.all() {
		errs = append(errs, p.setPeriods(c.Host.MinSyncPeriod.Duration, c.Host.SyncPeriod.Duration))
	}
	if slices.Contains(c.Applied, "mode") {
		set.fileSays(set.mode(c.Host.Mode))
	}
	set.changes.notify()
	return errors.Join(errs...)
}

// A group is the dataplanes that a host runs: the one that serves, and those that come and
// go beside it.
type group struct {
	changes notifier // of a dataplane, or of what is wanted

	mu      sync.Mutex   // guards what follows
	main    *dataplane   // the one that serves
	members []*dataplane // all that run
	life    context.Context

	drops drops
}

// run says for how long the processes are to run.
func (g *group) run(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.life = ctx
}

// name makes a dataplane an instance, of a build.
func (g *group) name(p *dataplane, id plane.ID, build string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.id, p.build, p.life = id, build, g.life
}

// drop takes a dataplane out of the group.
func (g *group) drop(p *dataplane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = slices.DeleteFunc(g.members, func(d *dataplane) bool { return d == p })
}

// setMain makes p the one that serves.
func (g *group) setMain(p *dataplane) {
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

// member returns the dataplane of an instance; nil: there is none.
func (g *group) member(id plane.ID) *dataplane {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.members {
		if p.id == id && id != 0 {
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
