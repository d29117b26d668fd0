// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
)

// Settings are the dependencies of a Set.
type Settings struct {
	Begun    *config.Host        // the settings at the start of the host; changes to fields read from here need a restart
	Now      func() *config.Host // the current settings
	NodeName string
	Addrs    []netip.Addr // of this machine, reachable from other machines

	Tracker *track.Tracker
	Reports *report.Reporter
	Log     hclog.Logger

	Interfaces func() map[netip.Addr]string // returns the node's addresses and their interfaces, without the interfaces of dataplanes

	Applied func(feed.Acked) // called for each update that a dataplane confirmed
	Refused func()           // called when a whole update failed
}

// failed reports that a part of a swap failed. The host continues.
func (s Settings) failed(part string, err error) {
	s.Reports.Report(report.Event{Warning: true, Reason: report.SwapNote, Message: fmt.Sprintf("%s: %v", part, err)})
}

// A Set holds the dataplanes of a host. After Begin has returned, its methods are safe for
// concurrent use.
type Set struct {
	*reconciler
	choice     func() plane.Choice      // of the mode for "auto"; made once
	unattended atomic.Pointer[[]string] // see Unattended
}

// New returns an empty Set. It has no effects before Begin.
func New(s Settings) *Set {
	in, g := installed{s}, &group{}
	set := &Set{
		reconciler: &reconciler{
			installed: in, group: g, startable: make(map[string]bool), builds: make(map[string]build),
			formers: make(map[string]*dataplane), losses: make(map[plane.ID]plane.Loss), phases: make(map[plane.ID]string), cancels: make(map[plane.ID]context.CancelFunc),
			counting: make(map[plane.ID]context.CancelFunc), failures: make(map[string]string),
		},
		choice: sync.OnceValue(in.makeChoice),
	}
	set.canary = canary.New(s.Tracker, s.NodeName, s.Addrs, g.ownProcesses)
	return set
}

// ownProcesses returns the process IDs of the plugins that this host runs on this machine.
func (g *group) ownProcesses() (pids []int) {
	for _, p := range g.all() {
		if remote := p.remote(); remote != nil && p.plugin.Address == "" {
			pids = append(pids, remote.Hello().PID)
		}
	}
	return pids
}

// newDataplane returns a dataplane of a mode, without a process.
func (r *reconciler) newDataplane(mode string) *dataplane {
	s := r.Now()
	return &dataplane{
		name: mode, plugin: r.plugin(mode), tracker: r.Tracker, reports: r.Reports, log: r.Log, logged: newPluginLog(mode, r.Log),
		periods: periods{s.MinSyncPeriod.Duration, s.SyncPeriod.Duration},
		options: s.Plugins[mode].Options,
		hooks:   hooks{applied: r.applied, refused: r.Refused, lost: r.processLost, changed: r.changes.notify},
	}
}

// applied forwards the updates that the serving dataplane confirms. What another dataplane
// confirms is not served yet, or no longer.
func (r *reconciler) applied(p *dataplane, a feed.Acked) {
	if r.serving() == p {
		r.Applied(a)
	}
}

// Run runs the dataplanes and swaps between them until ctx ends.
func (set *Set) Run(ctx context.Context) error {
	set.run(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { set.loop(ctx) })
	parts.Go(func() { set.survey(ctx) })
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

// Reload applies a changed config file.
func (set *Set) Reload(c config.State) error {
	var errs []error
	for _, p := range set.all() {
		errs = append(errs, p.setPeriods(c.Host.MinSyncPeriod.Duration, c.Host.SyncPeriod.Duration))
	}
	if slices.Contains(c.Applied, "mode") {
		set.setFileMode(set.mode(c.Host.Mode))
	}
	set.changes.notify()
	return errors.Join(errs...)
}

// A group holds the dataplanes that a host runs: the serving one, and others during and after a
// swap.
type group struct {
	changes notifier // of a dataplane or of the desired mode

	mu      sync.Mutex   // guards the fields below
	main    *dataplane   // the serving one
	members []*dataplane // all, including main
	life    context.Context
}

// run sets the context of the processes that are started from now on.
func (g *group) run(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.life = ctx
}

// name assigns a dataplane the ID of its instance and its build.
func (g *group) name(p *dataplane, id plane.ID, build string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.id, p.build, p.life = id, build, g.life
}

// drop removes a dataplane from the group.
func (g *group) drop(p *dataplane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = slices.DeleteFunc(g.members, func(d *dataplane) bool { return d == p })
}

// setMain sets the serving dataplane.
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

// member returns the dataplane of an instance, or nil.
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

// named returns the dataplane of a mode, or nil if none runs.
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

// add adds p. The first dataplane is the serving one.
func (g *group) add(p *dataplane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.main == nil {
		g.main = p
	}
	g.members = append(g.members, p)
}

// A notifier wakes all goroutines that wait for the next change. The zero value is ready to
// use.
type notifier struct {
	mu   sync.Mutex    // guards next
	next chan struct{} // closed by the next notify; nil if nobody waits
}

// wait returns a channel that the next notify closes. Call wait before you read the state, so
// that you miss no change.
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
