// SPDX-License-Identifier: Apache-2.0

package health

import (
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// metrics are what is counted as it happens. What can be read off at a scrape is
// collector's. docs/metrics.md says what each means; a test holds the two together.
type metrics struct {
	registry *prometheus.Registry // /metrics
	slis     *prometheus.Registry // /metrics/slis

	sync, fullSync, partialSync *prometheus.HistogramVec
	programming                 *prometheus.HistogramVec
	lastApplied, lastQueued     *prometheus.GaugeVec
	answers                     map[string]*prometheus.CounterVec // by probe
	failures                    prometheus.Counter
	requests                    *prometheus.CounterVec
	requestTook                 *prometheus.HistogramVec

	good   *prometheus.GaugeVec
	probes *prometheus.CounterVec
}

func newMetrics(s *Server) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), slis: prometheus.NewRegistry()}
	m.sync = m.histogram("kubeproxy_sync_proxy_rules_duration_seconds", "How long an update took to apply.", syncBuckets(), "ip_family")
	m.fullSync = m.histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "How long an update of everything took to apply.", syncBuckets(), "ip_family")
	m.partialSync = m.histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds", "How long an update of what changed took to apply.", syncBuckets(), "ip_family")
	m.programming = m.histogram("kubeproxy_network_programming_duration_seconds", "From the change of an endpoint until it was applied on this node.", programmingBuckets(), "ip_family")
	m.lastApplied = m.gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "When an update was last applied.", "ip_family")
	m.lastQueued = m.gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "When an update was last begun.", "ip_family")
	m.answers = map[string]*prometheus.CounterVec{
		healthz: m.counter("kubeproxy_proxy_healthz_total", "Answers of healthz.", "code"),
		livez:   m.counter("kubeproxy_proxy_livez_total", "Answers of livez.", "code"),
		readyz:  m.counter("pointsman_readyz_total", "Answers of readyz.", "code"),
	}
	m.failures = m.counter("pointsman_sync_failures_total", "Updates that failed altogether, and were tried again.").WithLabelValues()
	m.requests = m.counter("rest_client_requests_total", "Requests to the API server.", "code", "method", "host")
	m.requestTook = m.histogram("rest_client_request_duration_seconds", "How long the API server took to begin an answer.",
		[]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}, "verb", "host")
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} { // there from the start, as zeros
		m.lastApplied.WithLabelValues(familyName(family))
		m.lastQueued.WithLabelValues(familyName(family))
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &collector{server: s, samples: &samples{report: s.settings.Report}})
	m.gauge("pointsman_build_info", "What runs here; always 1.", "version", "go_version").WithLabelValues(s.settings.Version, runtime.Version()).Set(1)
	slis := promauto.With(m.slis)
	m.good = slis.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_healthcheck", Help: "How a probe last came out; 1 is well."}, []string{"name", "type"})
	m.probes = slis.NewCounterVec(prometheus.CounterOpts{Name: "kubernetes_healthchecks_total", Help: "How often a probe came out how."}, []string{"name", "status", "type"})
	return m
}

func (m *metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return promauto.With(m.registry).NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func (m *metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.With(m.registry).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func (m *metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(m.registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// probed counts what a probe was answered.
func (m *metrics) probed(which string, code int, good bool) {
	m.answers[which].WithLabelValues(strconv.Itoa(code)).Inc()
	status, value := "error", 0.0
	if good {
		status, value = "success", 1
	}
	m.good.WithLabelValues("proxy", which).Set(value)
	m.probes.WithLabelValues("proxy", status, which).Inc()
}

// applied counts an update that was applied at now. One update serves both IP
// families, so each that it was about took all of the time.
func (m *metrics) applied(a Applied, now time.Time) {
	for _, f := range a.Families {
		family := familyName(f)
		kind := m.partialSync
		if a.Full {
			kind = m.fullSync
		}
		for _, h := range []*prometheus.HistogramVec{m.sync, kind} {
			h.WithLabelValues(family).Observe(a.Took.Seconds())
		}
		m.lastQueued.WithLabelValues(family).Set(seconds(now.Add(-a.Took)))
		m.lastApplied.WithLabelValues(family).Set(seconds(now))
		for _, at := range a.Triggers {
			m.programming.WithLabelValues(family).Observe(max(0, now.Sub(at).Seconds()))
		}
	}
}

// Requested counts a request to the API server.
func (s *Server) Requested(method, host, code string, took time.Duration) {
	s.metrics.requests.WithLabelValues(code, method, host).Inc()
	s.metrics.requestTook.WithLabelValues(method, host).Observe(took.Seconds())
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// The bounds are kube-proxy's: dashboards compute quantiles over both.

func syncBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 15) }

func programmingBuckets() []float64 {
	return slices.Concat([]float64{0, 0.25, 0.5}, prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7))
}

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
			unserved(e, p, s.Tracker.Problems())
			c.samples.emit(e, p)
		} else {
			unserved(e, p, nil)
		}
	}
	e.counter("pointsman_samples_refused_total", "Metrics of dataplanes that were not published.", float64(c.samples.count()), nil)
	for reason, n := range s.Events() {
		e.counter("pointsman_events_total", "What happened, by reason; docs/metrics.md.", float64(n), labels{"reason": reason})
	}
	c.host(e, j)
}

func (c *collector) tracked(e emitter, t *track.Tracker) {
	counts := t.Counts()
	e.gauge("pointsman_services", "Services that are served here.", float64(counts.Services), nil)
	e.gauge("pointsman_service_ports", "Their ports, in each IP family.", float64(counts.Names), nil)
	e.gauge("pointsman_endpointslices", "EndpointSlices that are followed.", float64(counts.Slices), nil)
	e.gauge("pointsman_endpoints", "Endpoints in them.", float64(counts.Endpoints), nil)
	lacks := t.Lacks()
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		for policy, internal := range map[string]bool{"internal": true, "external": false} {
			e.gauge("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "Services with a Local traffic policy and usable endpoints, none of them on this node.",
				float64(lacks[track.Lack{Internal: internal, Family: family}]), labels{"traffic_policy": policy, "ip_family": familyName(family)})
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
		e.gauge("kubeproxy_sync_proxy_rules_"+kind.name+"_changes_pending", "Changes that are not applied yet.", left, nil)
		e.counter("kubeproxy_sync_proxy_rules_"+kind.name+"_changes_total", "Changes that were heard of.", float64(kind.seen), nil)
	}
}

// dataplane emits how the host runs one dataplane.
func dataplane(e emitter, p Dataplane, meant bool) {
	name := labels{"plugin": p.Name}
	e.gauge("pointsman_plugin_up", "Whether the plugin's process is there and in a session.", truth(p.Up), name)
	e.gauge("pointsman_plugin_active", "Whether it is the one that serves.", truth(meant && p.Up && p.Active && p.NoWriter == ""), name)
	e.counter("pointsman_plugin_log_lines_dropped_total", "Lines of its log that are not in the host's, because there were too many.", float64(p.LogDropped), name)
	e.counter("pointsman_plugin_restarts_total", "Processes started after the first.", float64(p.Restarts), name)
	e.gauge("pointsman_plugin_memory_bytes", "Its resident memory.", float64(p.Memory), name)
	e.counter("pointsman_plugin_repaired_total", "How often it undid another program's change of what it serves.", float64(p.Report.Repaired), name)
	e.gauge("pointsman_plugin_flows", "While it drains: established connections left.", float64(p.Report.Flows), name)
	for state, revision := range map[string]uint64{"sent": p.Sent, "acked": p.Acked, "served": p.Acked} {
		e.gauge("pointsman_plugin_revision", "The last update it was sent, the last it confirmed, and the last it serves, which is the same.", float64(revision), labels{"plugin": p.Name, "state": state})
	}
	e.gauge("pointsman_plugin_writer", "Whether it may write: its last update or role went in, so no other process holds the lock of its mode.", truth(p.Up && p.Writer), name)
	e.gauge("pointsman_plugin_pending", "Ports of Services that it is still owed.", float64(p.Pending), name)
}

func (c *collector) host(e emitter, j Assessment) {
	open, failed := c.server.checks.counts()
	e.gauge("pointsman_live", "Whether all loops of the host turn: what livez says.", truth(j.Live), nil)
	e.gauge("pointsman_ready", "Whether the dataplane serves, was sent everything and writes: what readyz says.", truth(j.Ready), nil)
	e.gauge("pointsman_healthy", "Whether what changes is served in time: what healthz says, but for a Node that is about to go.", truth(j.Healthy), nil)
	e.gauge("pointsman_waiting_seconds", "For how long the oldest of what is owed to the node has waited; 0: nothing does.", j.Waited.Seconds(), nil)
	e.gauge("pointsman_source_reachable", "Whether changes are heard of now.", truth(c.server.settings.Fault() == ""), nil)
	e.gauge("pointsman_health_checks", "healthCheckNodePorts of Services, by whether they are answered.", float64(open), labels{"state": "open"})
	e.gauge("pointsman_health_checks", "healthCheckNodePorts of Services, by whether they are answered.", float64(failed), labels{"state": "failed"})
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

type labels = prometheus.Labels

// An emitter takes metrics that are made at a scrape.
type emitter chan<- prometheus.Metric

func (e emitter) gauge(name, help string, v float64, of labels) {
	e.emit(name, help, prometheus.GaugeValue, v, of)
}

func (e emitter) counter(name, help string, v float64, of labels) {
	e.emit(name, help, prometheus.CounterValue, v, of)
}

// histogram emits what a dataplane has counted by size.
func (e emitter) histogram(h sdk.Histogram, help string) {
	sofar, buckets := uint64(0), make(map[float64]uint64, len(h.Bounds))
	for i, bound := range h.Bounds {
		sofar += h.Counts[i]
		buckets[bound] = sofar
	}
	desc := prometheus.NewDesc(h.Name, help, nil, h.Labels)
	m, err := prometheus.NewConstHistogram(desc, sofar+h.Counts[len(h.Bounds)], h.Sum, buckets)
	e.send(desc, m, err)
}

func (e emitter) emit(name, help string, kind prometheus.ValueType, v float64, of labels) {
	desc := prometheus.NewDesc(name, help, nil, of)
	m, err := prometheus.NewConstMetric(desc, kind, v)
	e.send(desc, m, err)
}

// send passes m on, or why there is none.
func (e emitter) send(desc *prometheus.Desc, m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	e <- m
}

// familyName returns f as Kubernetes writes it.
func familyName(f sdk.Family) string {
	if f == sdk.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}
