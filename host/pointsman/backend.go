// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"slices"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// backend answers the admin socket: each answer is put together when it is asked for.
func (h *host) backend() admin.Backend {
	return admin.Backend{
		Status:   h.status,
		Services: h.services,
		Plugins:  h.plugins,
		Config:   h.config,
		Events:   h.events,
		Logs:     h.logs,
		Restart:  h.restart,
		Modes:    admin.Modes{Show: h.yard.show, Plan: h.yard.plan, Swap: h.yard.swapTo, Reset: h.yard.reset},
	}
}

func (h *host) status() admin.Status {
	node := h.tracker.Node()
	counts := h.tracker.Counts()
	s := admin.Status{
		Node:      admin.Node{Name: node.Name, Addrs: texts(node.Addrs)},
		Host:      admin.Host{Version: wire.Build(), PID: os.Getpid(), Started: h.started},
		Source:    h.from,
		Mode:      h.serving().name,
		Dataplane: h.serving().shown(),
		Services: admin.Counts{
			Services: counts.Services, Ports: counts.Names,
			EndpointSlices: counts.Slices, Endpoints: counts.Endpoints,
		},
		Config: configUse(h.follower.Status()),
	}
	s.Swap, s.LastSwap = h.yard.underWay(h.yard.runner.Machine()), h.yard.worthAWord()
	s.Dataplane.APIVersion, s.Dataplane.Kind = admin.APIVersion, "Plugin"
	var followed track.CursorStatus
	s.Sync, followed = h.serving().followed()
	s.Unserved = unserved(followed, h.tracker.Services())
	s.Warnings = warnings(s, h.besides())
	s.Healthy = len(s.Warnings) == 0
	return s
}

func (h *host) besides() besides {
	b := besides{away: h.fault(), staleSince: h.follower.Status().StaleSince, unbound: h.servers.Unbound()}
	if f, ok := h.source.(faulty); ok {
		for _, fault := range f.Faults() {
			b.faults = append(b.faults, fault.Error())
		}
	}
	return b
}

// shown is the plane's plugin as status shows it.
func (p *plane) shown() admin.Plugin {
	s := p.supervisor.Status()
	p.mu.Lock()
	role := p.role
	p.mu.Unlock()
	a := admin.Plugin{
		Name: s.Name, Path: s.Path, InUse: true,
		State: s.State.String(), Why: s.Why,
		Version: s.Version, PID: s.PID, Up: s.Up, Restarts: s.Restarts, Fallback: s.Fallback,
		LastEnd: s.LastEnd, EndedAt: s.LastEndAt, Next: s.Next,
		Call: s.Vitals.Call, Waiting: s.Vitals.Waiting, Memory: s.Vitals.Memory,
		Features: plainTexts(s.Description.Features), Limits: plainTexts(s.Description.Limits),
		Options: s.Description.Options,
	}
	if role != 0 {
		a.Role = role.String()
	}
	return a
}

// followed is how far the dataplane has come.
func (p *plane) followed() (admin.Sync, track.CursorStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := admin.Sync{Last: p.last, TookMS: float64(p.took.Microseconds()) / 1000, Error: p.failure}
	if p.cursor == nil {
		return s, track.CursorStatus{}
	}
	c := p.cursor.Status()
	s.Sent, s.Acked, s.Pending = c.Sent, c.Acked, c.Pending
	return s, c
}

// unserved lists the Services that are not served as they ask, and why.
func unserved(c track.CursorStatus, services []track.ServiceStatus) []admin.Problem {
	problems := []admin.Problem{}
	add := func(service, reason, why string) {
		problems = append(problems, admin.Problem{Service: service, Reason: reason, Why: why})
	}
	for _, f := range c.Failed {
		var refusal *sdk.Refusal
		if errors.As(f.Err, &refusal) {
			add(f.Name.String(), "refused", f.Err.Error())
		} else {
			add(f.Name.String(), "failed", f.Err.Error())
		}
	}
	for _, w := range c.Withheld {
		add(w.Name.String(), "withheld", "the dataplane does not serve "+listOf(w.Lacks))
	}
	for _, name := range c.Kept {
		add(name.String(), "keptAside", "the dataplane could not bear it; it is left as it was served")
	}
	for _, s := range services {
		for _, why := range s.Problems {
			add(s.Key.String(), "conflict", why)
		}
	}
	slices.SortStableFunc(problems, func(a, b admin.Problem) int { return cmp.Compare(a.Service, b.Service) })
	return problems
}

func (h *host) services() []admin.Service {
	list := []admin.Service{}
	for _, s := range h.tracker.Services() {
		list = append(list, serviceOf(s))
	}
	return list
}

func serviceOf(s track.ServiceStatus) admin.Service {
	a := admin.Service{Namespace: s.Namespace, Name: s.Name, Ports: []admin.Port{}, Problems: s.Problems}
	for _, p := range s.Ports {
		a.Ports = append(a.Ports, admin.Port{
			Name:      p.Service.Name.Port,
			Network:   p.Service.Name.Network(),
			Frontends: texts(p.Service.Frontends),
			Cluster:   texts(p.Service.Cluster),
			Local:     texts(p.Service.Local),
			Ready:     p.Ready,
			Total:     p.Total,
		})
	}
	return a
}

// plugins are all that were found, those that run as they do: that of the mode, and
// for the time of a swap another.
func (h *host) plugins() []admin.Plugin {
	main := h.serving()
	list := []admin.Plugin{main.shown()}
	for _, f := range discover(h.follower.Host()) {
		switch p := h.yard.named(f.Name); {
		case p == nil:
			list = append(list, unused(f))
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

// unused is a plugin that no host runs.
func unused(f supervise.Found) admin.Plugin {
	p := admin.Plugin{Name: f.Name, Path: f.Path, State: "unused"}
	if f.Err != nil {
		p.Why = f.Err.Error()
	}
	return p
}

func (h *host) config() (admin.Config, error) {
	settings, err := h.follower.Host().JSON(false)
	return admin.Config{Use: configUse(h.follower.Status()), Settings: settings}, err
}

func (h *host) events() []admin.Event {
	list := []admin.Event{}
	for _, e := range h.reports.Recent() {
		list = append(list, admin.Event{Time: e.Time, Warning: e.Warning, Reason: e.Reason, Object: e.Object, Message: e.Message, Count: e.Count})
	}
	return list
}

func (h *host) logs(ctx context.Context, name string, follow bool, line func(admin.LogLine) error) error {
	p, err := h.running(name)
	if err != nil {
		return err
	}
	return p.book.read(ctx, follow, line)
}

// restart starts the plugin anew: by a swap to its own mode if the binary is
// another by now.
func (h *host) restart(name string) (string, error) {
	p, err := h.running(name)
	if err != nil {
		return "", err
	}
	if p == h.serving() && p.supervisor.Replaced() && p.supervisor.Status().State == supervise.Serving {
		return "plugin " + name + " gives way to its new binary; pointsman mode show tells how far it is",
			h.yard.ask(name, "pointsman plugin restart, and the binary was replaced", true)
	}
	p.supervisor.Restart("asked for by pointsman plugin restart")
	return "plugin " + name + " is started anew", nil
}

// running is the dataplane of that name, or why nothing can be asked of it.
func (h *host) running(name string) (*plane, error) {
	if p := h.yard.named(name); p != nil {
		return p, nil
	}
	for _, f := range discover(h.settings) {
		if f.Name == name {
			return nil, &admin.Error{Code: http.StatusConflict, What: "plugin " + name + " is not in use", Why: "the mode is " + h.serving().name, Try: "pointsman mode plan " + name}
		}
	}
	return nil, admin.UnknownPlugin(name)
}
