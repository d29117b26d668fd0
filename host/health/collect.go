// SPDX-License-Identifier: Apache-2.0

package health

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// A collector reads off, at a scrape, what the parts of the host know anyway.
type collector struct {
	server  *Server
	samples *samples
}

// Describe names no metric beforehand: which there are depends on the dataplane.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	e := emitter(out)
	s := c.server.settings
	j := c.server.Assess()
	c.tracked(e, s.Tracker)
	c.pending(e)
	for i, p := range s.Dataplanes() {
		dataplane(e, p, i == 0)
		if i == 0 {
			c.samples.emit(e, p)
		}
	}
	e.counter("pointsman_samples_refused_total", "Metrics of dataplanes that were not published.", float64(c.samples.count()))
	for reason, n := range s.Events() {
		e.counter("pointsman_events_total", "What happened, by reason; docs/metrics.md.", float64(n), pair{"reason", reason})
	}
	c.host(e, j)
}

func (c *collector) tracked(e emitter, t *track.Tracker) {
	counts := t.Counts()
	e.gauge("pointsman_services", "Services that are served here.", float64(counts.Services))
	e.gauge("pointsman_service_ports", "Their ports, in each IP family.", float64(counts.Names))
	e.gauge("pointsman_endpointslices", "EndpointSlices that are followed.", float64(counts.Slices))
	e.gauge("pointsman_endpoints", "Endpoints in them.", float64(counts.Endpoints))
	lacks := t.Lacks()
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		for policy, internal := range map[string]bool{"internal": true, "external": false} {
			e.gauge("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "Services with a Local traffic policy and usable endpoints, none of them on this node.",
				float64(lacks[track.Lack{Internal: internal, Family: family}]), pair{"traffic_policy", policy}, pair{"ip_family", familyName(family)})
		}
	}
}

// pending emits how much changed, and how much of that is not applied.
func (c *collector) pending(e emitter) {
	seen := c.server.settings.Tracker.Changes()
	c.server.mu.Lock()
	applied, waits := c.server.changes, !c.server.progress.waiting.IsZero()
	c.server.mu.Unlock()
	for _, kind := range []struct {
		name          string
		seen, applied uint64
	}{{"service", seen.Services, applied.Services}, {"endpoint", seen.Slices, applied.Slices}} {
		left := 0.0
		if waits {
			left = float64(kind.seen - min(kind.applied, kind.seen))
		}
		e.gauge("kubeproxy_sync_proxy_rules_"+kind.name+"_changes_pending", "Changes that are not applied yet.", left)
		e.counter("kubeproxy_sync_proxy_rules_"+kind.name+"_changes_total", "Changes that were heard of.", float64(kind.seen))
	}
}

// dataplane emits how the host runs one dataplane.
func dataplane(e emitter, p Dataplane, meant bool) {
	name := pair{"plugin", p.Name}
	e.gauge("pointsman_plugin_up", "Whether the plugin's process is there and in a session.", truth(p.Up), name)
	e.gauge("pointsman_plugin_active", "Whether it is the one that serves.", truth(meant && p.Up && p.Active && p.NoWriter == ""), name)
	e.counter("pointsman_plugin_log_lines_dropped_total", "Lines of its log that are not in the host's, because there were too many.", float64(p.LogDropped), name)
	e.counter("pointsman_plugin_restarts_total", "Processes started after the first.", float64(p.Restarts), name)
	e.gauge("pointsman_plugin_memory_bytes", "Its resident memory.", float64(p.Memory), name)
	e.counter("pointsman_plugin_repaired_total", "How often it undid another program's change of what it serves.", float64(p.Report.Repaired), name)
	e.gauge("pointsman_plugin_flows", "While it drains: established connections left.", float64(p.Report.Flows), name)
	e.gauge("pointsman_plugin_revision", "The last update it was sent, the last it confirmed, and the last it serves.", float64(p.Sent), name, pair{"state", "sent"})
	e.gauge("pointsman_plugin_revision", "The last update it was sent, the last it confirmed, and the last it serves.", float64(p.Acked), name, pair{"state", "acked"})
	e.gauge("pointsman_plugin_revision", "The last update it was sent, the last it confirmed, and the last it serves.", float64(p.Served), name, pair{"state", "served"})
	e.gauge("pointsman_plugin_writer", "Whether it is the writer of its mode, or needs no lock for that.", truth(p.Up && p.Writer), name)
	e.gauge("pointsman_plugin_pending", "Ports of Services that it is still owed.", float64(p.Pending), name)
	for why, n := range map[string]int{"failed": p.Failed, "withheld": p.Withheld, "kept": p.Kept} {
		e.gauge("pointsman_unserved", "Ports of Services that are not served as they ask: pointsman status names them.", float64(n), name, pair{"why", why})
	}
}

func (c *collector) host(e emitter, j Assessment) {
	open, failed := c.server.checks.counts()
	e.gauge("pointsman_live", "Whether all loops of the host turn: what livez says.", truth(j.Live))
	e.gauge("pointsman_ready", "Whether the dataplane serves, was sent everything and writes: what readyz says.", truth(j.Ready))
	e.gauge("pointsman_healthy", "Whether what changes is served in time: what healthz says, but for a Node that is about to go.", truth(j.Healthy))
	e.gauge("pointsman_waiting_seconds", "For how long the oldest of what is owed to the node has waited; 0: nothing does.", c.server.waited().Seconds())
	e.gauge("pointsman_source_reachable", "Whether changes are heard of now.", truth(c.server.settings.Fault() == ""))
	e.gauge("pointsman_health_checks", "healthCheckNodePorts of Services, by whether they are answered.", float64(open), pair{"state", "open"})
	e.gauge("pointsman_health_checks", "healthCheckNodePorts of Services, by whether they are answered.", float64(failed), pair{"state", "failed"})
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// A pair is a label and its value.
type pair struct{ name, value string }

// An emitter takes metrics that are made at a scrape.
type emitter chan<- prometheus.Metric

func (e emitter) gauge(name, help string, v float64, labels ...pair) {
	e.emit(name, help, prometheus.GaugeValue, v, labels)
}

func (e emitter) counter(name, help string, v float64, labels ...pair) {
	e.emit(name, help, prometheus.CounterValue, v, labels)
}

// histogram emits what a dataplane has counted by size.
func (e emitter) histogram(h sdk.Histogram, help string) {
	sofar, buckets := uint64(0), make(map[float64]uint64, len(h.Bounds))
	for i, bound := range h.Bounds {
		sofar += h.Counts[i]
		buckets[bound] = sofar
	}
	desc, values := describe(h.Name, help, pairs(h.Labels))
	m, err := prometheus.NewConstHistogram(desc, sofar+h.Counts[len(h.Bounds)], h.Sum, buckets, values...)
	e.send(desc, m, err)
}

func (e emitter) emit(name, help string, kind prometheus.ValueType, v float64, labels []pair) {
	desc, values := describe(name, help, labels)
	m, err := prometheus.NewConstMetric(desc, kind, v, values...)
	e.send(desc, m, err)
}

func describe(name, help string, labels []pair) (desc *prometheus.Desc, values []string) {
	names := make([]string, len(labels))
	for i, l := range labels {
		names[i] = l.name
		values = append(values, l.value)
	}
	return prometheus.NewDesc(name, help, names, nil), values
}

// send passes m on, or why there is none.
func (e emitter) send(desc *prometheus.Desc, m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	e <- m
}
