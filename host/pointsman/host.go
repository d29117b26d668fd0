// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/dataplanes"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/sockets"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/host/watch"
	"github.com/pointsman/pointsman/sdk/wire"
)

// configPeriod is how often a running host looks at its config file. What it finds
// must be there twice, so a change takes up to twice as long.
const configPeriod = time.Second

// A host is what `pointsman run` runs: the parts, connected.
type host struct {
	settings *config.Host // as at the start
	follower *config.Follower
	machine  machine
	started  time.Time

	log        hclog.Logger
	reports    *report.Reporter
	tracker    *track.Tracker
	source     source
	from       string        // what the source is called
	written    *watch.Events // to the cluster; nil: there is none
	servers    *health.Server
	dataplanes *dataplanes.Set
	sockets    *sockets.Watch
}

// newHost constructs the parts. Nothing happens before run.
func newHost(settings *config.Host, flags *pflag.FlagSet, logs io.Writer) (*host, error) {
	m, err := thisMachine()
	if err != nil {
		return nil, err
	}
	h := &host{
		settings: settings,
		follower: config.Follow(settings, flags, time.Now),
		machine:  m,
		started:  time.Now(),
		log:      newLog(settings.Logging, logs),
	}
	h.reports = report.New(time.Now, logged(h.log), h.announce)
	h.tracker = track.New(noticed(h.reports))
	h.tracker.Configure(factsOf(settings, m, h.started))
	h.servers = h.newServers()
	if err := h.openSource(settings.Source); err != nil {
		return nil, err
	}
	h.dataplanes = dataplanes.New(dataplanes.Settings{
		Begun: settings, Now: h.follower.Host, NodeName: nodeName(settings, m), Addrs: m.addrs,
		Tracker: h.tracker, Reports: h.reports, Log: h.log,
		Applied: h.applied, Refused: h.servers.Failed,
	})
	h.sockets = sockets.New(h.tracker, h.dataplanes.Processes, h.collided)
	return h, nil
}

// collided says that a process listens where a Service is reached.
func (h *host) collided(c sockets.Collision) {
	h.reports.Report(report.Event{Warning: true, Reason: report.PortInUse, Object: c.Port.Service.String(), Message: c.String()})
}

func thisMachine() (machine, error) {
	name, err := os.Hostname()
	if err != nil {
		return machine{}, fmt.Errorf("this machine's name: %w", err)
	}
	addrs, err := ownAddrs()
	if err != nil {
		return machine{}, fmt.Errorf("this machine's addresses: %w", err)
	}
	return machine{hostname: name, cpus: runtime.NumCPU(), addrs: addrs}, nil
}

// run runs the parts until ctx ends. Each of them ends with it.
func (h *host) run(ctx context.Context) error {
	lock, err := lockState(h.settings.StateDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	listener, err := admin.Listen(h.settings.AdminSocket)
	if err != nil {
		return fmt.Errorf("%w; try: --admin-socket PATH", err)
	}
	h.greet()
	h.dataplanes.Begin()

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	all := newParts(h.log)
	part := func(name string, run func(context.Context) error) { all.begin(ctx, name, run) }
	part("source", h.source.Run)
	if h.written != nil {
		part("events", h.written.Run)
	}
	part("servers", func(ctx context.Context) error {
		err := h.servers.Run(ctx)
		if err != nil && ctx.Err() == nil {
			end(err) // bindAddressHardFail asks for that
		}
		return err
	})
	part("sockets", h.sockets.Run)
	part("service manager", h.watched)
	part("config", func(ctx context.Context) error { h.follower.Run(ctx, configPeriod, h.reload); return nil })
	part("admin", func(ctx context.Context) error { return admin.Serve(ctx, listener, h.backend()) })
	part("dataplanes", h.dataplanes.Run)
	all.wait(ctx, "dataplanes")
	h.log.Info("host ended")
	if err := context.Cause(ctx); err != context.Canceled {
		return err
	}
	return nil
}

func (h *host) greet() {
	node := nodeName(h.settings, h.machine)
	h.log.Info("host begins", "version", wire.Build(), "node", node, "mode", h.settings.Mode,
		"source", h.from, "config", h.settings.Path(), "socket", h.settings.AdminSocket)
	h.reports.Report(report.Event{Reason: report.HostStarting, Object: node, Message: "pointsman " + wire.Build() + " begins, mode " + h.settings.Mode})
	for _, w := range h.settings.Warnings() {
		h.reports.Report(report.Event{Reason: report.ConfigOdd, Message: w.String()})
	}
}

// reload brings into force what of a changed config file can be.
func (h *host) reload(c config.Change) {
	if c.Err != nil {
		h.reports.Report(report.Event{Warning: true, Reason: report.ConfigRefused, Object: h.settings.Path(),
			Message: fmt.Sprintf("%v; the settings stay as they were", c.Err)})
		return
	}
	h.log.SetLevel(hclog.LevelFromString(c.Host.Logging.Level))
	h.tracker.Configure(factsOf(c.Host, h.machine, h.started))
	h.servers.SetPeriods(c.Host.MinSyncPeriod, c.Host.SyncPeriod)
	err := h.dataplanes.Reload(c)
	h.reports.Report(report.Event{Reason: report.ConfigTaken, Object: h.settings.Path(), Message: changed(c, err)})
}

// changed says what a change of the config file came to.
func changed(c config.Change, err error) string {
	text := "changed: " + phrase.List(c.Applied)
	if len(c.Pending) > 0 {
		text += "; waits for a restart of the host: " + phrase.List(c.Pending)
	}
	if err != nil {
		text += "; " + err.Error()
	}
	return text
}
