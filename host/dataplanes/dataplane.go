// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A dataplane is one process of a mode and, after that has ended, the next process of the same
// binary and options. A reconciler assigns its role by steps; at most one step at a time is
// about one dataplane.
type dataplane struct {
	host    *reconciler
	name    string
	plugin  launch.Plugin
	logged  *pluginLog
	changes notifier // notifies of changes to the fields that mu guards

	// The fields below are guarded by the reconciler's mutex.
	id       plane.ID
	build    string             // label of the build that it runs
	phase    string             // the stage of a swap that its step has reached; empty if there is no step
	cancel   context.CancelFunc // cancels its step, if that needs its process
	counting context.CancelFunc // ends the goroutine that counts its connections; nil if there is none
	loss     *plane.Loss        // its process ended during its Start step

	mu       sync.Mutex // guards the fields below, and some fields of session
	status   status
	end      chan<- error    // ends the current process; nil if there is none
	ended    <-chan struct{} // closed when that process and its session have ended
	options  json.RawMessage // of the current process, or of the next if there is none
	binary   *launch.Binary  // the last one started, kept open; nil if none
	identity string          // the result of plugin.Identify at that time
	pinned   bool            // restart binary instead of the file at the plugin's path
	clearing bool            // Cleanup has begun: send no more updates
	session  *session        // with the current process; nil if there is none
	held     *feed.Feed      // held until Release; nil if none is
	writer   writer          // state of the writer's lock
	repairs  repairs         // of changes that other programs made
	notes    []string        // as last reported
	drops    []sdk.Drops     // as last reported, also by an earlier process: the kernel counts on
	followed admin.Sync      // of the last updates, in any session; without the revisions

	succeeds bool // it will replace another process of its mode, which still holds the writer's lock
}

// observed returns the observation of its process, and whether the process is in session.
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

// notify wakes the goroutines that wait for a change.
func (p *dataplane) notify() {
	p.changes.notify()
	p.host.changes.notify()
}

// description returns the plugin's description of itself, from its current or last process.
func (p *dataplane) description() sdk.Description { return p.shownStatus().description }

// current returns the current session, or nil.
func (p *dataplane) current() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// remote returns the process in session, or nil.
func (p *dataplane) remote() *wire.Remote {
	if s := p.current(); s != nil {
		return s.remote
	}
	return nil
}

// The following methods are those of services.Dataplane.

func (p *dataplane) Name() string { return p.name }

func (p *dataplane) Process() (*wire.Remote, error) {
	if remote := p.remote(); remote != nil {
		return remote, nil
	}
	return nil, errNoProcess
}

func (p *dataplane) Progress() track.CursorStatus {
	_, c := p.sync()
	return c
}

// Standing returns the standing of a port of a Service. Without a session it is pending.
func (p *dataplane) Standing(name sdk.Name) track.Standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.session.hasFeed() {
		return track.Standing{Pending: true}
	}
	return p.session.cursor.Standing(name)
}

var errNoProcess = errors.New("no process is running")

// cursorStatus returns the progress of the session, and the Services that fail.
func (p *dataplane) cursorStatus() track.CursorStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session.status()
}

// diesWithProcess reports whether a dataplane serves only while its process runs.
func diesWithProcess(d sdk.Description) bool {
	return slices.Contains(d.Limits, sdk.LimitDiesWithProcess)
}

// differs reports whether the plugin runs with other options than those in the settings, and can get these without a
// change of its address.
func (p *dataplane) differs(s *config.Host) bool {
	as := s.Plugins[p.name]
	return p.plugin.Address == as.Address && !bytes.Equal(p.currentOptions(), as.Options)
}
