// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A dataplane is a mode as the host runs it: a process that is started again whenever it
// ends, and for each life of it a session. A swap sees it as a swapSide.
type dataplane struct {
	name          string
	slot          string // of its process, where there are two of the mode
	tracker       *track.Tracker
	reports       *report.Reporter
	log           hclog.Logger
	hooks         hooks
	process       *process
	changes       notifier      // of what mu guards, and of the process's state
	roleSemaphore chan struct{} // holds an element while the role of the process is set

	mu       sync.Mutex // guards what follows, and what is said to be in a session
	periods  periods
	want     sdk.Role   // that it is to have; zero: as it finds itself
	clearing bool       // it is being cleared: it is sent nothing more
	session  *session   // with the present process; nil: there is none
	held     *feed.Feed // that waits for Release; nil: none does
	writer   writer     // whether its process may write
	repairs  repairs    // of other programs' changes
	notes    []string   // that its process reported last
	followed followed

	served   bool // it was Active and had confirmed everything when its process was last seen
	succeeds bool // it takes the place of another process of its mode, which holds the writer's lock until then
}

// hooks are what the rest of the host gets from a dataplane.
type hooks struct {
	applied func(*dataplane, feed.Acked) // an update was confirmed
	refused func()                       // an update failed altogether
	lost    func(*dataplane, string)     // its process is gone or hangs
	changed func()                       // something of it is other than before
}

// periods are how often it is updated at most, and how often what failed is tried again.
type periods struct{ gap, retry time.Duration }

// followed is how it got on with the last update.
type followed struct {
	last    time.Time // when one was served; zero: none was, in any session
	took    time.Duration
	failure string // of the last one, where it failed
}

// run gives the dataplane its process, which begins with start.
func (p *dataplane) run(plugin supervise.Plugin) {
	p.process = &process{
		plugin: plugin, reports: p.reports, log: p.log, buffer: newLogBuffer(),
		lost:    func(why string) { p.hooks.lost(p, why) },
		changed: p.notify,
	}
	p.process.supervisor = supervise.New(plugin, supervise.Hooks{
		Session:    p.serve,
		Transition: p.process.transition,
		Log:        p.process.line,
		Beat:       p.beat,
	})
}

// start begins to run its process, until ctx ends or the process is stopped.
func (p *dataplane) start(ctx context.Context) { p.process.start(ctx) }

// notify has whatever waits for a change look again.
func (p *dataplane) notify() {
	p.changes.notify()
	p.hooks.changed()
}

// status returns what is known of its process.
func (p *dataplane) status() supervise.Status { return p.process.supervisor.Status() }

// remote returns the process in session; nil: there is none.
func (p *dataplane) remote() *wire.Remote {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil {
		return nil
	}
	return p.session.remote
}

var errNoProcess = errors.New("its process is gone")

// cursorStatus returns how far it has followed, and what it fails to serve.
func (p *dataplane) cursorStatus() track.CursorStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session.status()
}

// serves reports whether it does, as far as this host has seen: packets find their way by
// what it made, also while its process is away, unless that is what they go through.
func (p *dataplane) serves() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served
}

// synced reports whether it has confirmed everything.
func (p *dataplane) synced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session.filled()
}

// observe notes whether it serves, from what its process has answered. The caller has the mutex.
func (p *dataplane) observe() {
	p.served = p.session.is(sdk.Active) && p.session.filled() && p.writer.busy == nil
}

// refill has everything sent to it again.
func (p *dataplane) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session.fed() {
		p.session.refill()
	}
}

// setPeriods changes them, also for the session that goes on.
func (p *dataplane) setPeriods(gap, retry time.Duration) error {
	p.mu.Lock()
	p.periods = periods{gap, retry}
	s := p.session
	p.mu.Unlock()
	if !s.fed() {
		return nil
	}
	return s.feed.SetPeriods(gap, retry)
}

// diesWithProcess reports whether a dataplane serves only while its process runs.
func diesWithProcess(d sdk.Description) bool {
	return slices.Contains(d.Limits, sdk.LimitDiesWithProcess)
}
