// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
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

	log     hclog.Logger
	reports *report.Reporter
	tracker *track.Tracker
	source  source
	from    string        // what the source is called
	written *watch.Events // to the cluster; nil: there is none
	servers *health.Server
	yard    *yard
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
	h.yard = &yard{host: h, canary: newCanary(h)}
	return h, nil
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
	h.yard.begin()

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var parts sync.WaitGroup
	part := func(name string, run func(context.Context) error) {
		parts.Go(func() {
			// A part that fails is no reason to stop serving.
			if err := run(ctx); err != nil && ctx.Err() == nil {
				h.log.Error("a part of the host ended", "part", name, "err", err)
			}
		})
	}
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
	part("service manager", h.watched)
	part("config", func(ctx context.Context) error { h.follower.Run(ctx, configPeriod, h.reload); return nil })
	part("admin", func(ctx context.Context) error { return admin.Serve(ctx, listener, h.backend()) })
	part("dataplanes", h.yard.run)
	parts.Wait()
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
	h.reports.Report(report.Event{Reason: hostStarting, Object: node, Message: "pointsman " + wire.Build() + " begins, mode " + h.settings.Mode})
	for _, w := range h.settings.Warnings() {
		h.reports.Report(report.Event{Reason: configOdd, Message: w.String()})
	}
}

// reload brings into force what of a changed config file can be.
func (h *host) reload(c config.Change) {
	if c.Err != nil {
		h.reports.Report(report.Event{Warning: true, Reason: configRefused, Object: h.settings.Path(),
			Message: fmt.Sprintf("%v; the settings stay as they were", c.Err)})
		return
	}
	h.log.SetLevel(hclog.LevelFromString(c.Host.Logging.Level))
	h.tracker.Configure(factsOf(c.Host, h.machine, h.started))
	h.servers.SetPeriod(c.Host.SyncPeriod)
	err := h.yard.reload(c)
	h.reports.Report(report.Event{Reason: configTaken, Object: h.settings.Path(), Message: told(c, err)})
}

// told says what a change of the config file came to.
func told(c config.Change, err error) string {
	text := "changed: " + listOf(c.Applied)
	if len(c.Pending) > 0 {
		text += "; waits for a restart of the host: " + listOf(c.Pending)
	}
	if err != nil {
		text += "; " + err.Error()
	}
	return text
}

// plugin is a mode's plugin. Where no binary of it is there, it is one that does
// not come up: the host waits for it, and says so.
func (h *host) plugin(mode, slot string) supervise.Plugin {
	s := h.follower.Host()
	p := supervise.Plugin{
		Name:      mode,
		Slot:      slot,
		Path:      filepath.Join(h.settings.PluginDirs[0], supervise.Prefix+mode),
		SHA256:    s.Plugins[mode].SHA256,
		Address:   s.Plugins[mode].Address,
		Options:   s.Plugins[mode].Options,
		StateDir:  pluginStateDir(h.settings, mode),
		SocketDir: socketDir(h.settings.StateDir),
		Env:       []string{wire.LevelEnv + "=" + pluginLevel(h.settings.Logging.Level)},
	}
	if adj := h.settings.OOMScoreAdj; adj != 0 && h.spareMe(adj) {
		p.OOMScoreAdj = &adj
	}
	if p.Address != "" {
		return p
	}
	for _, f := range discover(s) {
		if f.Name == mode {
			p.Path = f.Path
			return p
		}
	}
	h.reports.Report(report.Event{Warning: true, Reason: pluginDown, Object: mode, Message: missing(s, mode)})
	return p
}

// spareMe asks the kernel to spare the host when memory runs out, and reports
// whether it may ask that.
func (h *host) spareMe(adj int) bool {
	err := os.WriteFile("/proc/self/oom_score_adj", fmt.Append(nil, adj), 0)
	if err != nil {
		h.log.Info("oomScoreAdj is left as it is", "err", err)
	}
	return err == nil
}

func pluginStateDir(h *config.Host, name string) string {
	return filepath.Join(h.StateDir, "plugins", name)
}

// socketDir is below stateDir, unless that is so long that a socket's path would not
// fit: the kernel takes 107 bytes.
func socketDir(stateDir string) string {
	if len(stateDir) > 50 {
		return ""
	}
	return filepath.Join(stateDir, "sockets")
}

// pluginLevel is a log level as plugins know them.
func pluginLevel(level string) string {
	if level == "trace" {
		return "debug"
	}
	return level
}

// discover looks for plugins where the settings say, and beside this binary.
func discover(h *config.Host) []supervise.Found {
	named := make(map[string]string)
	for name, p := range h.Plugins {
		named[name] = p.Path
	}
	dirs := h.PluginDirs
	if self, err := os.Executable(); err == nil {
		dirs = append(dirs[:len(dirs):len(dirs)], filepath.Dir(self))
	}
	return supervise.Discover(dirs, named)
}

// missing says that there is no binary for the mode, and what there is.
func missing(h *config.Host, mode string) string {
	text := fmt.Sprintf("there is no %s%s in %s", supervise.Prefix, mode, listOf(h.PluginDirs))
	var names []string
	for _, f := range discover(h) {
		names = append(names, f.Name)
	}
	if len(names) > 0 {
		return text + "; found for other modes: " + listOf(names)
	}
	return text + "; try: --plugin-dir DIR"
}
