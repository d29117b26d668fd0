// SPDX-License-Identifier: Apache-2.0

package health

import (
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

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
	healthz, livez, readyz      *prometheus.CounterVec
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
	m.healthz = m.counter("kubeproxy_proxy_healthz_total", "Answers of healthz.", "code")
	m.livez = m.counter("kubeproxy_proxy_livez_total", "Answers of livez.", "code")
	m.readyz = m.counter("pointsman_readyz_total", "Answers of readyz.", "code")
	m.failures = m.counter("pointsman_sync_failures_total", "Updates that failed altogether, and were tried again.").WithLabelValues()
	m.requests = m.counter("rest_client_requests_total", "Requests to the API server.", "code", "method", "host")
	m.requestTook = m.histogram("rest_client_request_duration_seconds", "How long the API server took to begin an answer.", requestBuckets(), "verb", "host")
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} { // there from the start, as zeros
		m.lastApplied.WithLabelValues(familyName(family))
		m.lastQueued.WithLabelValues(familyName(family))
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &collector{server: s, samples: &samples{report: s.settings.Report}})
	m.identify(s.settings.Version)
	m.measureProbes()
	return m
}

func (m *metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

// identify says what runs, in Kubernetes' words too: dashboards ask every
// component for them.
func (m *metrics) identify(version string) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	m.gauge("pointsman_build_info", "What runs here; always 1.", "version", "go_version").WithLabelValues(version, runtime.Version()).Set(1)
	m.gauge("kubernetes_build_info", "What runs here; always 1. The version is Pointsman's.", "git_version", "go_version", "compiler", "platform").
		WithLabelValues(version, runtime.Version(), runtime.Compiler, platform).Set(1)
}

func (m *metrics) measureProbes() {
	m.good = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_healthcheck", Help: "How a probe last came out; 1 is well."}, []string{"name", "type"})
	m.probes = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubernetes_healthchecks_total", Help: "How often a probe came out how."}, []string{"name", "status", "type"})
	m.slis.MustRegister(m.good, m.probes)
}

// probed counts what a probe was answered.
func (m *metrics) probed(which string, code int, good bool) {
	byCode := map[string]*prometheus.CounterVec{healthz: m.healthz, livez: m.livez, readyz: m.readyz}[which]
	byCode.WithLabelValues(strconv.Itoa(code)).Inc()
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
		if !a.Late {
			for _, h := range []*prometheus.HistogramVec{m.sync, kind} {
				h.WithLabelValues(family).Observe(a.Took.Seconds())
			}
			m.lastQueued.WithLabelValues(family).Set(seconds(now.Add(-a.Took)))
		}
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
	bounds := []float64{0, 0.25, 0.5}
	bounds = append(bounds, prometheus.LinearBuckets(1, 1, 59)...)
	bounds = append(bounds, prometheus.LinearBuckets(60, 5, 12)...)
	return append(bounds, prometheus.LinearBuckets(120, 30, 7)...)
}

func requestBuckets() []float64 {
	return []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
}
