// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A dataplane is one process of a mode as the host runs it, and, when that has ended, the next one of the same binary
// and options. Each process has its role by the steps of a reconciler, of which at most one is about it at a time.
type dataplane struct {
	name    string
	id      plane.ID // the group's mutex guards it, and build
	build   string   // that it runs
	plugin  supervise.Plugin
	tracker *track.Tracker
	reports *report.Reporter
	log     hclog.Logger
	logged  *pluginLog
	hooks   hooks
	drops   *drops          // of all modes
	changes notifier        // of what mu guards
	life    context.Context // that of the host: no process outlives it

	mu       sync.Mutex // guards what follows, and what is said to be in a session
	status   status
	end      chan<- error    // ends the present process; nil: there is none
	ended    <-chan struct{} // closed once that and its session are over
	options  json.RawMessage // of the present process, or of the next one
	binary   *launch.Binary  // that was started last, kept open; nil: none was
	identity string          // what plugin.Identify returned then
	pinned   bool            // binary is started again, and not the one at the plugin's path
	periods  periods
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
	lost    func(*dataplane, plane.Loss) // its process is over; it returns when that is started again
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

// observed returns what its process is found to be, and whether it is in session.
func (p *dataplane) observed() (o plane.Observation, up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil {
		return o, false
	}
	vitals := p.status.vitals
	o = plane.Observation{Synced: p.session.full && p.writer.busy == nil, Busy: p.writer.busy != nil, Role: p.session.role, Shown: vitals.Shown, Progress: vitals.Progress}
	if !o.Synced {
		o.Err = p.lockMissing()
	}
	return o, true
}

// started returns the outcome of a start that went well.
func (p *dataplane) started() plane.Outcome {
	return plane.Outcome{Dies: diesWithProcess(p.description()), Apart: p.plugin.Address != ""}
}

// notify has whatever waits for a change look again.
func (p *dataplane) notify() {
	p.changes.notify()
	p.hooks.changed()
}

// description returns what its process, or the last one, says of itself.
func (p *dataplane) description() sdk.Description { return p.shownStatus().description }

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
	return p.plugin.Address == as.Address && !bytes.Equal(p.currentOptions(), as.Options)
}
