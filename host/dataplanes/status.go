// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/services"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// This file answers status requests about the Set and about single dataplanes.

// Serving returns the status of the serving plugin.
func (set *Set) Serving() admin.Plugin { return set.serving().shown() }

// Followed returns the progress of the serving dataplane.
func (set *Set) Followed() admin.Sync {
	s, _ := set.serving().sync()
	return s
}

// Health returns the state of the dataplanes for probes and metrics: the main one first, then
// those of other modes.
func (set *Set) Health() []health.Dataplane {
	main := set.serving()
	list := []health.Dataplane{main.health()}
	for _, p := range set.all() {
		if p.name != main.name {
			list = append(list, p.health())
		}
	}
	return list
}

// Plugins returns the status of all plugins found, running or not.
func (set *Set) Plugins() []admin.Plugin {
	main := set.serving()
	list := []admin.Plugin{main.shown()}
	for _, f := range binaries.Discover(set.Now()) {
		switch p := set.named(f.Name); {
		case p == nil:
			list = append(list, binaries.Unused(f))
		case p != main:
			other := p.shown()
			other.InUse = false
			list = append(list, other)
		}
	}
	slices.SortFunc(list, func(a, b admin.Plugin) int { return cmp.Compare(a.Name, b.Name) })
	for i := range list {
		list[i].APIVersion, list[i].Kind = admin.APIVersion, "Plugin"
	}
	return list
}

// Logs calls line for each stored line of a plugin's log and, with follow, for each new line
// until ctx ends.
func (set *Set) Logs(ctx context.Context, name string, follow bool, line func(admin.LogLine) error) error {
	p, err := set.running(name)
	if err != nil {
		return err
	}
	if address := p.plugin.Address; address != "" {
		return &admin.Error{Code: http.StatusConflict, What: "the host does not have the log of plugin " + name, Why: "something else runs the plugin, at " + address,
			Try: fmt.Sprintf("journalctl -u pointsman-dataplane@%s, or kubectl logs POD -c %s", name, name)}
	}
	return p.logged.buffer.read(ctx, follow, line)
}

// Restart restarts a plugin. If it serves and its binary was replaced, Restart swaps to a new
// process of the mode.
func (set *Set) Restart(name string) (string, error) {
	p, err := set.running(name)
	if err != nil {
		return "", err
	}
	if p == set.serving() && p.isReplaced() && p.shownStatus().state == Serving {
		return set.changeWant(func() (string, error) {
			set.newBuild(name, "pointsman plugin restart, and the binary was replaced")
			return "plugin " + name + " is being replaced by its new binary; pointsman mode show shows the progress", nil
		})
	}
	if !p.beginStop(fmt.Errorf("pointsman plugin restart %s: %w", name, launch.ErrRestart)) {
		set.mu.Lock()
		set.state.Ready(p.id) // it waits to be started
		set.mu.Unlock()
		set.changes.notify()
	}
	return "plugin " + name + " restarts", nil
}

// running returns the dataplane of a mode, or an error that explains why there is none.
func (set *Set) running(name string) (*dataplane, error) {
	if p := set.named(name); p != nil {
		return p, nil
	}
	var there []string
	for _, f := range binaries.Discover(set.Begun) {
		there = append(there, f.Name)
		if f.Name == name {
			return nil, &admin.Error{Code: http.StatusConflict, What: "plugin " + name + " is not in use", Why: "the mode is " + set.serving().name, Try: "pointsman plugin check " + name}
		}
	}
	return nil, binaries.UnknownPlugin(name, there)
}

// shown returns the status of the dataplane's plugin.
func (p *dataplane) shown() admin.Plugin {
	p.mu.Lock()
	s := p.status
	var role sdk.Role
	if p.session != nil {
		role = p.session.role
	}
	busy, wrote := p.writer.busy, p.writer.wrote
	p.mu.Unlock()
	a := s.Plugin
	a.Name, a.Path, a.InUse, a.Debug = p.name, p.plugin.Where(), true, p.plugin.Debug
	a.State, a.Restarts = s.state.String(), s.restarts()
	a.Version, a.Options = s.description.Version, s.description.Options
	a.Features, a.Limits = phrase.Plain(s.description.Features), phrase.Plain(s.description.Limits)
	a.Call, a.Waiting, a.Notes, a.Memory = s.vitals.Call, s.vitals.Waiting, s.vitals.Notes, s.vitals.Memory
	if role != 0 {
		a.Role = role.String()
	}
	switch {
	case busy != nil:
		a.Lock, a.Holder = "awaited", busy.Holder()
	case wrote:
		a.Lock = "held"
	}
	return a
}

// sync returns the progress of the dataplane.
func (p *dataplane) sync() (admin.Sync, track.CursorStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, c := p.followed, p.session.status()
	if !p.session.hasFeed() { // a new session will send everything again
		c.Pending = p.host.Tracker.Counts().Names
	}
	s.Sent, s.Acked, s.Served, s.Pending = c.Sent, c.Acked, c.Acked, c.Pending
	return s, c
}

// health returns the state of the dataplane for probes and metrics.
func (p *dataplane) health() health.Dataplane {
	s := p.shownStatus()
	sync, followed := p.sync()
	h := health.Dataplane{
		Name:       p.name,
		State:      s.state.String(),
		Why:        s.Why,
		Failure:    sync.Error,
		Since:      followed.Since,
		Looked:     s.looked,
		Mortal:     diesWithProcess(s.description),
		Restarts:   s.restarts(),
		LogDropped: p.logged.dropped.Load() + s.vitals.LogDropped,
		Memory:     s.vitals.Memory,
		Report:     s.vitals.Report,
		Sent:       sync.Sent,
		Acked:      sync.Acked,
		Pending:    sync.Pending,
		Unserved:   make(map[string]int),
		Dropped:    make(map[string]uint64),
	}
	for _, u := range services.UnservedBy(followed) {
		h.Unserved[u.Reason]++
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.drops {
		h.Dropped[d.Reason] += d.Packets
	}
	h.Up, h.Filled, h.Active = p.session.hasFeed(), p.session.filled(), p.session.hasRole(sdk.Active)
	h.Repairs = len(p.repairs.times)
	h.NoWriter, h.Writer = p.whyNoWriter(p.session), p.writer.wrote
	return h
}
