// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/internal/notify"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// newServers returns the servers that answer probes, scrapes and health checks of
// Services. All that they answer is looked up when they are asked.
func (h *host) newServers() *health.Server {
	s := h.settings
	return health.New(health.Settings{
		Healthz:    s.HealthzBindAddress,
		Metrics:    s.MetricsBindAddress,
		HardFail:   s.BindAddressHardFail,
		Profiling:  s.EnableProfiling,
		Mode:       func() string { return h.dataplanes.Mode() },
		Version:    wire.Build(),
		Period:     s.SyncPeriod,
		MinGap:     s.MinSyncPeriod,
		Tracker:    h.tracker,
		Dataplanes: func() []health.Dataplane { return h.dataplanes.Health() },
		Config:     func() ([]byte, error) { return h.follower.Host().JSON(false) },
		Events:     h.reports.Counts,
		Fault:      h.fault,
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

// applied passes to the servers an update that the dataplane confirmed.
func (h *host) applied(a feed.Acked) {
	about := families(a.Update)
	if a.Late {
		about = []sdk.Family{sdk.IPv4, sdk.IPv6}
	}
	h.servers.Applied(health.Applied{Families: about, Full: a.Update.Full, Late: a.Late, Took: a.Took, Triggers: a.Triggers})
}

// families returns the IP families that an update is about: both, if it is about
// everything or about the node.
func families(u sdk.Update) []sdk.Family {
	if u.Full || u.Node != nil {
		return []sdk.Family{sdk.IPv4, sdk.IPv6}
	}
	var list []sdk.Family
	add := func(f sdk.Family) {
		if !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	for _, s := range u.Set {
		add(s.Name.Family)
	}
	for _, name := range u.Delete {
		add(name.Family)
	}
	return list
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
