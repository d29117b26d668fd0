// SPDX-License-Identifier: Apache-2.0

package health

import (
	"maps"
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

// metrics are the metrics that are counted as events happen. Collect provides those that
// are read at a scrape. A test writes the tables of docs/metrics.md from their texts.
type metrics struct {
	registry *prometheus.Registry
	all      prometheus.Gatherers // /metrics: registry, and the samples of the dataplane
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
	m.sync = m.histogram("kubeproxy_sync_proxy_rules_duration_seconds", "Time from sending an update to the dataplane until its confirmation.", syncBuckets(), "ip_family")
	m.fullSync = m.histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "Time of full updates, after a start of the host or plugin.", syncBuckets(), "ip_family")
	m.partialSync = m.histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds", "Time of updates that are not full.", syncBuckets(), "ip_family")
	m.programming = m.histogram("kubeproxy_network_programming_duration_seconds", "Time from the change of an endpoint, by its EndpointSlice, until the confirmation on this node.", programmingBuckets(), "ip_family")
	m.lastApplied = m.gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "Time of the last confirmed update; 0: none.", "ip_family")
	m.lastQueued = m.gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "Time when the last confirmed update was begun.", "ip_family")
	m.answers = map[string]*prometheus.CounterVec{
		healthz: m.counter("kubeproxy_proxy_healthz_total", "Answers of /healthz, by HTTP status.", "code"),
		livez:   m.counter("kubeproxy_proxy_livez_total", "Answers of /livez, by HTTP status.", "code"),
		readyz:  m.counter("pointsman_readyz_total", "Answers of /readyz, by HTTP status.", "code"),
	}
	m.failures = m.counter("pointsman_sync_failures_total", "Updates that failed as a whole, and are tried again.").WithLabelValues()
	m.requests = m.counter("rest_client_requests_total", "Requests to the API server.", "code", "method", "host")
	m.requestTook = m.histogram("rest_client_request_duration_seconds", "Time until the API server began to answer.",
		[]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}, "verb", "host")
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} { // present from the start, as zeros
		m.lastApplied.WithLabelValues(familyName(family))
		m.lastQueued.WithLabelValues(familyName(family))
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), s)
	refused := m.counter("pointsman_samples_refused_total", "Metrics of dataplanes not published because of their name or labels.").WithLabelValues()
	m.all = prometheus.Gatherers{&samples{settings: s.settings, refused: refused}, m.registry}
	m.gauge("pointsman_build_info", "The version that runs; always 1.", "version", "go_version").WithLabelValues(s.settings.Version, runtime.Version()).Set(1)
	slis := promauto.With(m.slis)
	m.good = slis.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_healthcheck", Help: "The last result of a probe; 1 is well. On /metrics/slis."}, []string{"name", "type"})
	m.probes = slis.NewCounterVec(prometheus.CounterOpts{Name: "kubernetes_healthchecks_total", Help: "Results of probes, success or error. On /metrics/slis."}, []string{"name", "status", "type"})
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

// countProbe counts an answer of a probe.
func (m *metrics) countProbe(which string, code int, good bool) {
	m.answers[which].WithLabelValues(strconv.Itoa(code)).Inc()
	status, value := "error", 0.0
	if good {
		status, value = "success", 1
	}
	m.good.WithLabelValues("proxy", which).Set(value)
	m.probes.WithLabelValues("proxy", status, which).Inc()
}

// countApplied counts an update that was confirmed at now. One update serves both IP families, so
// its time counts for each family in it.
func (m *metrics) countApplied(a Applied, now time.Time) {
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

// The buckets are kube-proxy's, because dashboards compute quantiles over both.

func syncBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 15) }

func programmingBuckets() []float64 {
	return slices.Concat([]float64{0, 0.25, 0.5}, prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7))
}

// Describe sends nothing, because the set of metrics depends on the dataplane.
func (s *Server) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector: it reads the state of the host's parts at a scrape.
func (s *Server) Collect(out chan<- prometheus.Metric) {
	e, j := emitter(out), s.Assess()
	emitTracked(e, s.settings.Tracker)
	s.emitPending(e)
	dropped := make(map[string]uint64) // by all dataplanes, so that it does not change when traffic moves to another one and back
	for i, p := range s.settings.Dataplanes() {
		emitDataplane(e, p, i == 0)
		var troubled []track.ServiceStatus // the problems of Services count once
		if i == 0 {
			troubled = s.settings.Tracker.Troubled()
		}
		emitUnserved(e, p, troubled)
		for reason, n := range p.Dropped {
			dropped[reason] += n
		}
	}
	for reason, n := range dropped {
		e.counter("pointsman_dropped_packets_total", "Packets to Services that the rules of dataplanes dropped or rejected, by reason: source_range, local_without_endpoint, no_endpoint or foreign_port.", float64(n), labels{"reason": reason})
	}
	for reason, n := range s.settings.Events() {
		e.counter("pointsman_events_total", "Events, by reason.", float64(n), labels{"reason": reason})
	}
	s.emitWarnings(e)
	s.emitHost(e, j)
}

// emitWarnings emits the number of warnings of status, by code. The codes of this package are
// present from the start, as zeros.
func (s *Server) emitWarnings(e emitter) {
	count := map[string]int{NotServing: 0, Waits: 0, NoWriter: 0, NotEligible: 0, HostStuck: 0, NoNode: 0, Meddled: 0, Degraded: 0}
	maps.Copy(count, s.settings.Warnings())
	for code, n := range count {
		e.gauge("pointsman_warnings", "Warnings of status, by code.", float64(n), labels{"code": code})
	}
}

func emitTracked(e emitter, t *track.Tracker) {
	counts := t.Counts()
	e.gauge("pointsman_services", "Services on this node.", float64(counts.Services), nil)
	e.gauge("pointsman_service_ports", "Ports of Services, in each IP family.", float64(counts.Names), nil)
	e.gauge("pointsman_endpointslices", "EndpointSlices.", float64(counts.Slices), nil)
	e.gauge("pointsman_endpoints", "Endpoints in EndpointSlices.", float64(counts.Endpoints), nil)
	lacks := t.Lacks()
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		for policy, internal := range map[string]bool{"internal": true, "external": false} {
			e.gauge("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "Services with a Local policy (internal or external) whose endpoints are all on other nodes.",
				float64(lacks[track.Lack{Internal: internal, Family: family}]), labels{"traffic_policy": policy, "ip_family": familyName(family)})
		}
	}
}

// emitPending emits the number of changes, and how many are not applied yet.
func (s *Server) emitPending(e emitter) {
	seen := s.settings.Tracker.Changes()
	s.mu.Lock()
	applied, waits := s.changes, !s.progress.waiting.IsZero()
	s.mu.Unlock()
	for _, kind := range []struct {
		name, objects string
		seen, applied uint64
	}{{"service", "Services", seen.Services, applied.Services}, {"endpoint", "EndpointSlices", seen.Slices, applied.Slices}} {
		left := 0.0
		if waits {
			left = float64(kind.seen - min(kind.applied, kind.seen))
		}
		e.gauge("kubeproxy_sync_proxy_rules_"+kind.name+"_changes_pending", "Changes of "+kind.objects+" that are not confirmed.", left, nil)
		e.counter("kubeproxy_sync_proxy_rules_"+kind.name+"_changes_total", "Changes of "+kind.objects+" received.", float64(kind.seen), nil)
	}
}

// emitDataplane emits the metrics of one dataplane.
func emitDataplane(e emitter, p Dataplane, isMain bool) {
	name := labels{"plugin": p.Name}
	e.gauge("pointsman_plugin_up", "1 while the plugin's process is in a session.", boolValue(p.Up), name)
	e.gauge("pointsman_plugin_active", "1 for the plugin that serves: of the mode, in a session, active, and may write.", boolValue(isMain && p.Up && p.Active && p.NoWriter == ""), name)
	e.counter("pointsman_plugin_log_lines_dropped_total", "Lines of the plugin's log that the host's log left out, by rate limit.", float64(p.LogDropped), name)
	e.counter("pointsman_plugin_restarts_total", "Restarts of the plugin.", float64(p.Restarts), name)
	e.gauge("pointsman_plugin_memory_bytes", "Resident memory of the plugin.", float64(p.Memory), name)
	e.counter("pointsman_plugin_repaired_total", "Repairs of what another program changed.", float64(p.Report.Repaired), name)
	e.gauge("pointsman_plugin_flows", "While it drains: connections left.", float64(p.Report.Flows), name)
	for state, revision := range map[string]uint64{"sent": p.Sent, "acked": p.Acked, "served": p.Acked} {
		e.gauge("pointsman_plugin_revision", "The last update sent, and the last one acked; served is the same as acked.", float64(revision), labels{"plugin": p.Name, "state": state})
	}
	e.gauge("pointsman_plugin_writer", "1 once it has written in its session, and while no other process holds the writer's lock. 0 for the active plugin: its updates are not served.", boolValue(p.Up && p.Writer), name)
	e.gauge("pointsman_plugin_pending", "Ports of Services with unconfirmed changes.", float64(p.Pending), name)
}

func (s *Server) emitHost(e emitter, j Assessment) {
	s.mu.Lock()
	failed := s.unboundChecks
	s.mu.Unlock()
	open := max(0, len(s.settings.Tracker.HealthChecks())-failed)
	e.gauge("pointsman_live", "As /livez: 0 means that a restart of the host would help.", boolValue(j.Live), nil)
	e.gauge("pointsman_ready", "As /readyz: 1 while the dataplane is up, has the whole state, may write and is not late.", boolValue(j.Ready), nil)
	e.gauge("pointsman_healthy", "1 unless a change has waited for two syncPeriod. /healthz also fails if the Node is about to be removed or does not exist.", boolValue(j.Healthy), nil)
	e.gauge("pointsman_waiting_seconds", "Age of the oldest unconfirmed change; 0: none.", j.Waited.Seconds(), nil)
	e.gauge("pointsman_source_reachable", "1 while the source reports changes; 0 while the API server does not answer or refuses the host.", boolValue(s.settings.Fault() == ""), nil)
	e.gauge("pointsman_health_checks", "healthCheckNodePorts that are open, or failed to bind.", float64(open), labels{"state": "open"})
	e.gauge("pointsman_health_checks", "healthCheckNodePorts that are open, or failed to bind.", float64(failed), labels{"state": "failed"})
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

type labels = prometheus.Labels

// An emitter receives metrics that are created at a scrape.
type emitter chan<- prometheus.Metric

func (e emitter) gauge(name, help string, v float64, of labels) {
	e.emit(name, help, prometheus.GaugeValue, v, of)
}

func (e emitter) counter(name, help string, v float64, of labels) {
	e.emit(name, help, prometheus.CounterValue, v, of)
}

// histogram emits a histogram of a dataplane.
func (e emitter) histogram(h sdk.Histogram, help string) {
	sofar, buckets := uint64(0), make(map[float64]uint64, len(h.Bounds))
	for i, bound := range h.Bounds {
		sofar += h.Counts[i]
		buckets[bound] = sofar
	}
	desc := prometheus.NewDesc(h.Name, help, nil, h.Labels)
	m, err := prometheus.NewConstHistogram(desc, sofar+h.Counts[len(h.Bounds)], h.Sum, buckets)
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	e <- m
}

func (e emitter) emit(name, help string, kind prometheus.ValueType, v float64, of labels) {
	desc := prometheus.NewDesc(name, help, nil, of)
	m, err := prometheus.NewConstMetric(desc, kind, v)
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	e <- m
}

// familyName returns f as Kubernetes spells it.
func familyName(f sdk.Family) string {
	if f == sdk.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}
