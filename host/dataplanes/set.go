// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

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
	*Modes
	*survey
	canary *canary.Canary
}

// New returns a Set with no dataplane yet. Nothing happens before Begin.
func New(s Settings) *Set {
	set := &Set{Modes: newModes(s)}
	set.survey = &survey{plugins: set.installed, running: set.group}
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
		periods:       periods{s.MinSyncPeriod, s.SyncPeriod},
		roleSemaphore: make(chan struct{}, 1),
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

// Run runs the dataplanes, and swaps, until ctx ends.
func (set *Set) Run(ctx context.Context) error {
	set.group.run(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { set.runner.Run(ctx) })
	parts.Go(func() { set.follow(ctx) })
	parts.Go(func() { set.record.keep(ctx) })
	parts.Go(func() { set.survey.run(ctx) })
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

// Reload follows a change of the config file.
func (set *Set) Reload(c config.Change) error {
	var errs []error
	for _, p := range set.all() {
		errs = append(errs, p.setPeriods(c.Host.MinSyncPeriod, c.Host.SyncPeriod))
	}
	if slices.Contains(c.Applied, "mode") {
		set.change(func(i intent.Intent) intent.Intent { return i.FileSays(c.Host.Mode) })
		set.changes.notify()
	}
	return errors.Join(errs...)
}
