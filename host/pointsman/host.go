// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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

// configPeriod is how often a running host looks at its config file. What it finds
// must be there twice, so a change takes up to twice as long.
const configPeriod = time.Second

// A host is what `pointsman run` runs: the parts, connected.
type host struct {
	settings *config.Host     // as at the start
	hangup   <-chan os.Signal // SIGHUP: the config file is read at once
	follower *config.Follower
	machine  machine
	started  time.Time

	log        hclog.Logger
	reports    *report.Reporter
	tracker    *track.Tracker
	source     func(context.Context) error // feeds the tracker, until the context ends
	from       string                      // what the source is called
	faults     func() []watch.Fault        // what is wrong with what the source reads
	fault      func() string               // why no changes are heard of now; empty: they are
	written    *watch.Events               // to the cluster; nil: there is none
	servers    *health.Server
	dataplanes *dataplanes.Set
	site       *web.Site // the status page; nil: it is not served
}

// newHost constructs the parts. Nothing happens before run.
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
		Applied: h.applied, Refused: h.servers.Failed, Interfaces: doctor.Interfaces,
	})
	h.follower.Check = h.dataplanes.Refuses
	if settings.WebBindAddress != "" {
		h.site = web.New(nodeName(settings, m), h.backend(), h.servers)
	}
	return h, nil
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
				end(err) // bindAddressHardFail asks for that
			}
			return err
		},
		"service manager": h.watched,
		"config":          func(ctx context.Context) error { h.follower.Run(ctx, configPeriod, h.hangup, h.reload); return nil },
		"admin":           func(ctx context.Context) error { return admin.Serve(ctx, listener, h.backend()) },
		"dataplanes":      h.dataplanes.Run,
	}
	if h.written != nil {
		parts["events"] = h.written.Run
	}
	if h.site != nil {
		parts["status page"] = h.site.Run
	}
	runParts(ctx, h.log, parts, "dataplanes")
	h.log.Info("host ended")
	if err := context.Cause(ctx); err != context.Canceled {
		return err
	}
	return nil
}

func (h *host) greet() {
	node := nodeName(h.settings, h.machine)
	h.log.Info("host begins", "version", wire.Build(), "node", node, "mode", h.settings.Mode,
		"source", h.from, "config", h.settings.From.Path, "socket", h.settings.AdminSocket)
	h.reports.Report(report.Event{Reason: report.HostStarting, Object: node, Message: "pointsman " + wire.Build() + " begins, mode " + h.settings.Mode})
	for _, w := range h.settings.From.Warnings {
		h.reports.Report(report.Event{Reason: report.ConfigOdd, Message: w.String()})
	}
}

// reload brings into force what of a changed config file can be.
func (h *host) reload(c config.State) {
	if c.Err != nil {
		h.reports.Report(report.Event{Warning: true, Reason: report.ConfigRefused, Object: h.settings.From.Path,
			Message: fmt.Sprintf("%v; the settings stay as they were", c.Err)})
		return
	}
	h.log.SetLevel(hclog.LevelFromString(c.Host.Logging.Level))
	h.tracker.Configure(factsOf(c.Host, h.machine, h.started))
	h.servers.SetPeriods(c.Host.MinSyncPeriod.Duration, c.Host.SyncPeriod.Duration)
	err := h.dataplanes.Reload(c)
	h.reports.Report(report.Event{Reason: report.ConfigTaken, Object: h.settings.From.Path, Message: changed(c, err)})
}

// changed says what a change of the config file came to.
func changed(c config.State, err error) string {
	text := "nothing changed"
	if len(c.Applied) > 0 {
		text = "changed: " + phrase.List(c.Applied)
	}
	if len(c.Pending) > 0 {
		text += "; waits for a restart of the host: " + phrase.List(c.Pending)
	}
	if err != nil {
		text += "; " + err.Error()
	}
	return text
}

// openSource opens the source that the settings name.
func (h *host) openSource(s config.Source) error {
	if s.Files == nil {
		return h.openCluster(*s.Kubernetes)
	}
	files := watch.Files(s.Files.Path, h.tracker, noticed(h.reports))
	h.source, h.faults, h.fault = files.Run, files.Faults, func() string { return "" }
	h.from = "files " + s.Files.Path
	return nil
}

// openCluster opens a cluster's API server, to read of Services and to write events.
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
	node, notice := nodeName(h.settings, h.machine), noticed(h.reports)
	cluster := watch.Kubernetes(client, h.tracker, watch.KubeSettings{NodeName: node, SetNode: h.servers.SetNode, Report: notice})
	h.source, h.faults, h.fault = cluster.Run, func() []watch.Fault { return nil }, cluster.Fault
	h.written = watch.NewEvents(client, node, notice)
	h.from = "kubernetes"
	return nil
}

// announce is the sink that writes events to the cluster: what is wrong, and when
// this node begins to be served.
func (h *host) announce(e report.Event) {
	if h.written == nil || !e.Warning && e.Reason != report.HostStarting && e.Reason != report.DataplaneActive {
		return
	}
	object := e.Object
	if e.Reason == report.ConfigRefused {
		object = "" // a file of this node
	}
	h.written.Write(track.Notice{Warning: e.Warning, Reason: e.Reason, Object: object, Message: e.Message})
}

// newServers returns the servers that answer probes, scrapes and health checks of
// Services. All that they answer is looked up when they are asked.
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
		Config:     h.published,
		KubeProxy:  func() []byte { return h.follower.Host().From.KubeProxy },
		Events:     h.reports.Counts,
		Warnings:   h.warned,
		Fault:      func() string { return h.fault() },
		Level:      h.setLevel,
		Report:     noticed(h.reports),
		Log:        serverLog(h.log, "probes and metrics"),
	})
}

// setLevel changes the log's level until the host ends, or its file says otherwise.
func (h *host) setLevel(level string) error {
	l := hclog.LevelFromString(level)
	if l == hclog.NoLevel {
		return fmt.Errorf("%q is no level: give a number from 0 to 10, or trace, debug, info, warn or error", level)
	}
	h.log.SetLevel(l)
	return nil
}

// applied passes to the servers an update that the dataplane confirmed. It is about both IP
// families if it is about everything or about the node.
func (h *host) applied(a feed.Acked) {
	u := a.Update
	var about []sdk.Family
	for _, f := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		if u.Full || u.Node != nil ||
			slices.ContainsFunc(u.Set, func(s sdk.Service) bool { return s.Name.Family == f }) ||
			slices.ContainsFunc(u.Delete, func(name sdk.Name) bool { return name.Family == f }) {
			about = append(about, f)
		}
	}
	h.servers.Applied(health.Applied{Families: about, Full: u.Full, Took: a.Took, Triggers: a.Triggers})
}

// watched notifies a service manager that the host runs, and from then on that it is
// not stuck. A dataplane that is late is no reason to end the host: it would be
// late all the more.
func (h *host) watched(ctx context.Context) error {
	if err := notify.Notify(notify.Ready); err != nil {
		return err
	}
	return notify.Watch(ctx, h.servers.Live)
}
