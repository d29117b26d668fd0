// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A dataplane is one process of a mode as the host runs it, which is started again when it ends, and for each life of
// it a session. A process has its role by the steps of a reconciler, of which at most one is about it at a time.
type dataplane struct {
	name    string
	id      plane.ID // the group's mutex guards it, and build
	build   string   // that it runs
	tracker *track.Tracker
	reports *report.Reporter
	log     hclog.Logger
	hooks   hooks
	process *process
	changes notifier   // of what mu guards, and of the process's state
	starts  chan start // each has its process be started once

	mu       sync.Mutex // guards what follows, and what is said to be in a session
	periods  periods
	starting *start     // nil: its process is not being started
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

// A start has a process be started.
type start struct {
	role sdk.Role   // that it is given before it is sent anything; zero: it keeps the one that the kernel shows
	done chan error // gets nil once there is a session and it has the role; it has room for that
}

// hooks are what the rest of the host gets from a dataplane.
type hooks struct {
	applied func(*dataplane, feed.Acked) // an update was confirmed
	refused func()                       // an update failed altogether
	ready   func(*dataplane)             // its process may be started
	ended   func(*dataplane, error)      // a session has ended
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
		failed:  func(why string) { p.hasStarted(errors.New(why)) },
		changed: p.notify,
	}
	p.process.supervisor = supervise.New(plugin, supervise.Hooks{
		Start:      p.awaitStart,
		Session:    p.serve,
		Transition: p.process.transition,
		Log:        p.process.line,
		Beat:       p.beat,
	})
}

// awaitStart waits for a start. A process that is needed only to clean up is started without one.
func (p *dataplane) awaitStart(ctx context.Context) error {
	p.hooks.ready(p)
	for {
		changed := p.changes.wait()
		p.mu.Lock()
		clearing := p.clearing
		p.mu.Unlock()
		if clearing {
			return ctx.Err()
		}
		select {
		case s := <-p.starts:
			p.mu.Lock()
			p.starting = &s
			p.mu.Unlock()
			return nil
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hasStarted ends a start: there is a session, or its process has failed to have one.
func (p *dataplane) hasStarted(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.starting != nil {
		p.starting.done <- err
		p.starting = nil
	}
}

// observed returns what its process is found to be, and whether it is in session and has been given its first role.
func (p *dataplane) observed() (o plane.Observation, up bool) {
	vitals := p.status().Vitals
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil || p.starting != nil {
		return o, false
	}
	o = plane.Observation{Synced: p.session.full && p.writer.busy == nil, Busy: p.writer.busy != nil, Role: p.session.role, Shown: vitals.Shown, Progress: vitals.Progress}
	if !o.Synced {
		o.Err = p.lockMissing()
	}
	return o, true
}

// started returns the outcome of a start that went well.
func (p *dataplane) started() plane.Outcome {
	return plane.Outcome{Dies: diesWithProcess(p.status().Description), Apart: p.process.plugin.Address != ""}
}

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

// observe notes whether it serves, from what its process has answered. The caller has the mutex.
func (p *dataplane) observe() {
	p.served = p.session.is(sdk.Active) && p.session.filled() && p.writer.busy == nil
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

// differs reports whether the plugin runs with other options than the settings have for it, and
// can be given those.
func (p *dataplane) differs(s *config.Host) bool {
	as := s.Plugins[p.name]
	return p.process.plugin.Address == as.Address && !bytes.Equal(p.process.supervisor.Options(), as.Options)
}
