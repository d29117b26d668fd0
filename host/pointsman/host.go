// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/dataplanes"
	"github.com/pointsman/pointsman/host/doctor"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/host/watch"
	"github.com/pointsman/pointsman/host/web"
	"github.com/pointsman/pointsman/internal/notify"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// configPeriod is the time between reads of the config file. A change takes effect when two reads
// agree, so it takes up to twice as long.
const configPeriod = time.Second

// A host is the parts of `pointsman run`, connected.
type host struct {
	settings *config.Host     // when the host started
	hangup   <-chan os.Signal // SIGHUP reads the config file at once
	follower *config.Follower // has the current settings
	machine  machine
	started  time.Time

	log        hclog.Logger
	reports    *report.Reporter
	tracker    *track.Tracker
	source     func(context.Context) error // feeds the tracker until ctx ends
	sourceName string
	faults     func() []watch.Fault // in what the source reads
	fault      func() string        // why the source delivers no changes; empty if it does
	events     *watch.Events        // to the cluster; nil if the source is no cluster
	servers    *health.Server
	dataplanes *dataplanes.Set
	site       *web.Site // the status page; nil if it is not served
}

// newHost constructs the parts. It starts nothing.
func newHost(settings *config.Host, flags *pflag.FlagSet, logs io.Writer) (*host, error) {
	m, err := thisMachine()
	if err != nil {
		return nil, err
	}
	h := &host{
		settings: settings,
		follower: config.Follow(settings, flags),
		machine:  m,
		started:  time.Now(),
		log:      newLog(settings, logs),
	}
	h.reports = report.New(time.Now, logged(h.log), h.writeToCluster)
	h.tracker = track.New(reportNotices(h.reports))
	h.tracker.Configure(factsOf(settings, m, h.started))
	h.servers = h.newServers()
	if err := h.openSource(settings.Source); err != nil {
		return nil, err
	}
	h.dataplanes = dataplanes.New(dataplanes.Settings{
		Begun: settings, Now: h.follower.Host, NodeName: nodeName(settings, m), Addrs: m.addrs,
		Tracker: h.tracker, Reports: h.reports, Log: h.log,
		Applied: h.countUpdate, Refused: h.servers.Failed, Interfaces: doctor.Interfaces,
	})
	h.follower.Check = h.dataplanes.Refuses
	if settings.WebBindAddress != "" {
		h.site = web.New(nodeName(settings, m), h.backend(), h.servers)
	}
	return h, nil
}

// run runs the parts until ctx ends.
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
	h.reportStart()
	if err := h.dataplanes.Begin(); err != nil {
		listener.Close()
		return err
	}

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	parts := map[string]func(context.Context) error{
		"source": h.source,
		"servers": func(ctx context.Context) error {
			err := h.servers.Run(ctx)
			if err != nil && ctx.Err() == nil {
				end(err) // only with bindAddressHardFail
			}
			return err
		},
		"service manager": h.notifyManager,
		"config":          func(ctx context.Context) error { h.follower.Run(ctx, configPeriod, h.hangup, h.reload); return nil },
		"admin":           func(ctx context.Context) error { return admin.Serve(ctx, listener, h.backend()) },
		"dataplanes":      h.dataplanes.Run,
	}
	if h.events != nil {
		parts["events"] = h.events.Run
	}
	if h.site != nil {
		parts["status page"] = h.site.Run
	}
	runParts(ctx, h.log, parts, "dataplanes")
	h.log.Info("host ended")
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// reportStart reports the start of the host, and doubtful settings.
func (h *host) reportStart() {
	node := nodeName(h.settings, h.machine)
	h.log.Info("host starting", "version", wire.Build(), "node", node, "mode", h.settings.Mode,
		"source", h.sourceName, "config", h.settings.From.Path, "socket", h.settings.AdminSocket)
	h.reports.Report(report.Event{Reason: report.HostStarting, Object: node, Message: "pointsman " + wire.Build() + " starts in mode " + h.settings.Mode})
	for _, w := range h.settings.From.Warnings {
		h.reports.Report(report.Event{Reason: report.ConfigOdd, Message: w.String()})
	}
}

// reload applies a changed config file, as far as that is possible without a restart.
func (h *host) reload(c config.State) {
	if c.Err != nil {
		h.reports.Report(report.Event{Warning: true, Reason: report.ConfigRefused, Object: h.settings.From.Path,
			Message: fmt.Sprintf("%v; the host keeps its settings", c.Err)})
		return
	}
	h.log.SetLevel(hclog.LevelFromString(c.Host.Logging.Level))
	h.tracker.Configure(factsOf(c.Host, h.machine, h.started))
	h.servers.SetPeriods(c.Host.MinSyncPeriod.Duration, c.Host.SyncPeriod.Duration)
	text := "nothing changed"
	if len(c.Applied) > 0 {
		text = "changed: " + phrase.List(c.Applied)
	}
	if len(c.Pending) > 0 {
		text += "; needs a restart of the host: " + phrase.List(c.Pending)
	}
	h.dataplanes.Reload(c)
	h.reports.Report(report.Event{Reason: report.ConfigTaken, Object: h.settings.From.Path, Message: text})
}

// openSource opens the source of Services that the settings name.
func (h *host) openSource(s config.Source) error {
	if s.Files == nil {
		return h.openCluster(*s.Kubernetes)
	}
	files := watch.Files(s.Files.Path, h.tracker, reportNotices(h.reports))
	h.source, h.faults, h.fault = files.Run, files.Faults, func() string { return "" }
	h.sourceName = "files " + s.Files.Path
	return nil
}

// openCluster connects to a cluster's API server, to read Services and to write events.
func (h *host) openCluster(k config.Kubernetes) error {
	client, err := watch.Connect(watch.Connection{
		Kubeconfig: k.Kubeconfig,
		QPS:        h.settings.ClientConnection.QPS,
		Burst:      h.settings.ClientConnection.Burst,
		UserAgent:  "pointsman/" + wire.Build(),
		Observe:    func(r watch.Request) { h.servers.Requested(r.Method, r.Host, r.Code, r.Took) },
	})
	if err != nil {
		return err
	}
	node, notice := nodeName(h.settings, h.machine), reportNotices(h.reports)
	cluster := watch.Kubernetes(client, h.tracker, watch.KubeSettings{NodeName: node, SetNode: h.servers.SetNode, Report: notice})
	h.source, h.faults, h.fault = cluster.Run, func() []watch.Fault { return nil }, cluster.Fault
	h.events = watch.NewEvents(client, node, notice)
	h.sourceName = "kubernetes"
	return nil
}

// writeToCluster is the sink that writes events to the cluster: warnings, and the two that say when
// this node is served.
func (h *host) writeToCluster(e report.Event) {
	if h.events == nil || !e.Warning && e.Reason != report.HostStarting && e.Reason != report.DataplaneActive {
		return
	}
	object := e.Object
	if e.Reason == report.ConfigRefused {
		object = "" // a file on this node is no object of the cluster
	}
	h.events.Write(track.Notice{Warning: e.Warning, Reason: e.Reason, Object: object, Message: e.Message})
}

// newServers returns the servers for probes, metrics, the status page and the health checks of
// Services. They compute each response from the current state.
func (h *host) newServers() *health.Server {
	s := h.settings
	return health.New(health.Settings{
		Healthz:    s.HealthzBindAddress,
		Metrics:    s.MetricsBindAddress,
		Web:        s.WebBindAddress,
		Pages:      http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.site.ServeHTTP(w, r) }),
		HardFail:   s.BindAddressHardFail,
		Profiling:  s.EnableProfiling,
		Mode:       func() string { return h.dataplanes.Mode() },
		Version:    wire.Build(),
		Period:     s.SyncPeriod.Duration,
		MinGap:     s.MinSyncPeriod.Duration,
		Tracker:    h.tracker,
		Dataplanes: func() []health.Dataplane { return h.dataplanes.Health() },
		Config:     h.publicConfig,
		KubeProxy:  func() []byte { return h.follower.Host().From.KubeProxy },
		Events:     h.reports.Counts,
		Warnings:   h.warningCounts,
		Fault:      func() string { return h.fault() },
		Level:      h.setLevel,
		Report:     reportNotices(h.reports),
		Log:        serverLog(h.log, "probes and metrics"),
	})
}

// setLevel sets the log level until the host ends or the config file changes it.
func (h *host) setLevel(level string) error {
	l := hclog.LevelFromString(level)
	if l == hclog.NoLevel {
		return fmt.Errorf("%q is no log level; want a number from 0 to 10, or trace, debug, info, warn or error", level)
	}
	h.log.SetLevel(l)
	return nil
}

// countUpdate passes an update that the dataplane confirmed to the metrics. A full update and a
// change of the node count for both IP families.
func (h *host) countUpdate(a feed.Acked) {
	u := a.Update
	families := slices.DeleteFunc([]sdk.Family{sdk.IPv4, sdk.IPv6}, func(f sdk.Family) bool {
		return !u.Full && u.Node == nil &&
			!slices.ContainsFunc(u.Set, func(s sdk.Service) bool { return s.Name.Family == f }) &&
			!slices.ContainsFunc(u.Delete, func(name sdk.Name) bool { return name.Family == f })
	})
	h.servers.Applied(health.Applied{Families: families, Full: u.Full, Took: a.Took, Triggers: a.Triggers})
}

// notifyManager tells the service manager that the host is ready, and then, until ctx ends, that it
// is alive. A slow dataplane does not count: restarting the host would make it slower.
func (h *host) notifyManager(ctx context.Context) error {
	if err := notify.Notify(notify.Ready); err != nil {
		return err
	}
	return notify.Watch(ctx, h.servers.Live)
}
