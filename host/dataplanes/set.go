// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/pointsman/pointsman/host/services"
	"github.com/pointsman/pointsman/host/track"
)

// Settings are the settings and dependencies of a Set.
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
	in := installed{s}
	return &Set{
		reconciler: &reconciler{
			installed: in, canary: canary.New(s.Tracker, s.NodeName, s.Addrs),
			planes: make(map[plane.ID]*dataplane), startable: make(map[string]bool), builds: make(map[string]build),
			formers: make(map[string]*dataplane), failures: make(map[string]string),
		},
		choice: sync.OnceValue(in.makeChoice),
	}
}

// newDataplane returns a dataplane of a mode, without a process.
func (r *reconciler) newDataplane(mode string) *dataplane {
	return &dataplane{host: r, name: mode, plugin: r.plugin(mode), logged: newPluginLog(mode, r.Log), options: r.Now().Plugins[mode].Options}
}

// Run runs the dataplanes and swaps between them until ctx ends.
func (set *Set) Run(ctx context.Context) error {
	set.life = ctx
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
func (set *Set) Reload(c config.State) {
	for _, p := range set.all() {
		if s := p.current(); s.hasFeed() {
			s.feed.SetPeriods(c.Host.MinSyncPeriod.Duration, c.Host.SyncPeriod.Duration)
		}
	}
	if slices.Contains(c.Applied, "mode") {
		set.setFileMode(set.mode(c.Host.Mode))
	}
	set.changes.notify()
}

// serving returns the main dataplane: the one that serves, or that should serve if none does.
func (r *reconciler) serving() *dataplane { return r.main.Load() }

// Main is serving for queries.
func (set *Set) Main() services.Dataplane { return set.serving() }

// serves reports whether a dataplane serves, in the view of this host. Rules in the kernel serve
// also while the process is away, unless the dataplane dies with its process.
func (r *reconciler) serves(p *dataplane) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, _ := r.state.Instance(p.id)
	return i.Served
}

// all returns the dataplanes that have an instance: the serving one, and others during and after
// a swap.
func (r *reconciler) all() []*dataplane {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*dataplane
	for _, id := range slices.Sorted(maps.Keys(r.planes)) {
		all = append(all, r.planes[id])
	}
	return all
}

// named returns the dataplane of a mode, or nil if none runs.
func (r *reconciler) named(mode string) *dataplane {
	all := append([]*dataplane{r.serving()}, r.all()...)
	if i := slices.IndexFunc(all, func(p *dataplane) bool { return p.name == mode }); i >= 0 {
		return all[i]
	}
	return nil
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
