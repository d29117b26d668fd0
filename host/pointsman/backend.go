// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// backend answers the admin socket: each answer is put together when it is asked for.
func (h *host) backend() admin.Backend {
	return admin.Backend{
		Status:   h.status,
		Services: h.services,
		Plugins:  h.dataplanes.Plugins,
		Config:   h.config,
		Events:   h.events,
		Logs:     h.dataplanes.Logs,
		Restart:  h.dataplanes.Restart,
		Log:      serverLog(h.log, "admin"),
		Modes:    admin.Modes{Show: h.dataplanes.Show, Plan: h.dataplanes.Plan, Swap: h.dataplanes.SwapTo, Reset: h.dataplanes.Reset},
	}
}

func (h *host) status() admin.Status {
	node := h.tracker.Node()
	counts := h.tracker.Counts()
	s := admin.Status{
		Node:      admin.Node{Name: node.Name, Addrs: phrase.Texts(node.Addrs)},
		Host:      admin.Host{Version: wire.Build(), PID: os.Getpid(), Started: h.started},
		Source:    h.from,
		Mode:      h.dataplanes.Mode(),
		Dataplane: h.dataplanes.Serving(),
		Services: admin.Counts{
			Services: counts.Services, Ports: counts.Names,
			EndpointSlices: counts.Slices, Endpoints: counts.Endpoints,
		},
		Config: configUse(h.follower.Status()),
	}
	s.Swap, s.LastSwap = h.dataplanes.UnderWay(), h.dataplanes.LastSwap()
	s.Dataplane.APIVersion, s.Dataplane.Kind = admin.APIVersion, "Plugin"
	var followed track.CursorStatus
	s.Sync, followed = h.dataplanes.Followed()
	s.Unserved = unserved(followed, h.tracker.Services())
	j := h.servers.Assess()
	s.Probes = admin.Probes{Healthz: j.Healthy && j.Eligible, Livez: j.Live, Readyz: j.Ready}
	s.Warnings = warnings(s, h.besides(j))
	s.Healthy = len(s.Warnings) == 0
	return s
}

func (h *host) besides(j health.Assessment) besides {
	b := besides{found: j.Findings, away: h.fault(), staleSince: h.follower.Status().StaleSince, unbound: h.servers.Unbound(),
		unwritten: h.dataplanes.Unwritten(), stateDir: h.settings.StateDir, unattended: h.dataplanes.Unattended()}
	if f, ok := h.source.(faulty); ok {
		for _, fault := range f.Faults() {
			b.faults = append(b.faults, fault.Error())
		}
	}
	all := h.sockets.Now()
	for i, c := range all {
		if i == shownProblems {
			b.portsInUse = append(b.portsInUse, fmt.Sprintf("and %d more ports of Services are listened on", len(all)-i))
			break
		}
		b.portsInUse = append(b.portsInUse, c.String())
	}
	return b
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
		add(w.Name.String(), "withheld", "the dataplane does not serve "+phrase.List(w.Lacks))
	}
	for _, name := range c.Kept {
		add(name.String(), "keptAside", "the dataplane crashes on it; it is left as it was served before")
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
			Frontends: phrase.Texts(p.Service.Frontends),
			Cluster:   phrase.Texts(p.Service.Cluster),
			Local:     phrase.Texts(p.Service.Local),
			Ready:     p.Ready,
			Total:     p.Total,
		})
	}
	return a
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
