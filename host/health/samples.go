// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// samples publishes the metrics that the serving dataplane reports.
type samples struct {
	report func(track.Notice)

	mu      sync.Mutex // guards the fields below
	last    string     // the last reported refusals
	refused int        // total number of refusals
}

// emit publishes p's samples, except those that are refused.
func (s *samples) emit(e emitter, p Dataplane) {
	j := newFilter(p.Name)
	for _, h := range p.Report.Histograms {
		if j.histogram(h) {
			e.histogram(h, j.help(p.Name, h.Name, h.Help))
		}
	}
	for _, m := range p.Report.Samples {
		if j.sample(m) {
			e.emit(m.Name, j.help(p.Name, m.Name, m.Help), kindOf(m.Name), m.Value, m.Labels)
		}
	}
	s.reportRefused(p.Name, j.refused)
}

// reportRefused counts refusals, and reports them if they differ from the previous ones.
func (s *samples) reportRefused(plugin string, bad []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused += len(bad)
	text := strings.Join(bad[:min(len(bad), 3)], "; ")
	if text != "" && text != s.last {
		s.report(track.Notice{Warning: true, Reason: SampleRefused, Object: plugin, Message: fmt.Sprintf("%d of its metrics are not published: %s", len(bad), text)})
	}
	s.last = text
}

// count returns the total number of refusals.
func (s *samples) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// kindOf derives the type of a metric from its name. One of kube-proxy's gauges has a counter's
// name.
func kindOf(name string) prometheus.ValueType {
	if strings.HasSuffix(name, "_total") && name != "kubeproxy_sync_proxy_rules_iptables_total" {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// Limits on the metrics of a dataplane: each series costs Prometheus memory on every node of
// the cluster.
const (
	maxSeries     = 256
	maxLabels     = 3
	maxLabelValue = 64 // bytes
)

// A known metric is a metric of kube-proxy that only a dataplane can measure.
type known struct {
	labels []string
	bounds []float64 // of a histogram; nil if it is a single value
	help   string
}

// allowed returns the known metrics by name. A dataplane may also publish metrics with its own
// prefix, pointsman_NAME_.
func allowed() map[string]known {
	family, table, protocol := []string{"ip_family"}, []string{"ip_family", "table"}, []string{"ip_family", "protocol"}
	return map[string]known{
		"kubeproxy_sync_proxy_rules_iptables_total":                              {table, nil, "Rules installed."},
		"kubeproxy_sync_proxy_rules_iptables_last":                               {table, nil, "Rules written by the last update."},
		"kubeproxy_sync_proxy_rules_iptables_restore_failures_total":             {family, nil, "Writes that iptables rejected."},
		"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total":     {family, nil, "Partial writes that iptables rejected."},
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total":                {family, nil, "Batches that the kernel rejected."},
		"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total":             {family, nil, "Batches that only remove elements, and that the kernel rejected."},
		"kubeproxy_iptables_ct_state_invalid_dropped_packets_total":              {nil, nil, "Packets dropped because they belong to no connection."},
		"kubeproxy_iptables_localhost_nodeports_accepted_packets_total":          {nil, nil, "Packets to a node port on a loopback address."},
		"kubeproxy_conntrack_reconciler_sync_duration_seconds":                   {family, syncBuckets(), "Time of a search for stale UDP flows, as a part of an update."},
		"kubeproxy_conntrack_reconciler_deleted_entries_total":                   {family, nil, "Stale UDP flows deleted."},
		"kubeproxy_nftables_localhost_nodeport_listeners":                        {family, nil, "Listeners for node ports on loopback addresses."},
		"kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total": {family, nil, "Listeners for node ports on loopback addresses that failed to open."},
		"kubeproxy_nftables_localhost_nodeport_rejected_packets_total":           {protocol, nil, "Packets to node ports on loopback addresses that were rejected."},
	}
}

// help returns the help text of a metric: the plugin's, or else one derived from the name. All
// series of a metric must have the same text.
func (f *filter) help(plugin, name, said string) string {
	if k, known := f.known[name]; known {
		return k.help
	}
	if f.helps[name] == "" {
		f.helps[name] = cmp.Or(said, "Of the "+plugin+" dataplane: "+strings.ReplaceAll(strings.TrimPrefix(name, f.own), "_", " ")+".")
	}
	return f.helps[name]
}

// isHosts reports whether the host itself publishes a metric with that name. Otherwise a
// dataplane named "plugin" or "health" could use names of the host.
func isHosts(name string) bool {
	return slices.Contains([]string{
		"pointsman_build_info", "pointsman_dropped_packets_total", "pointsman_endpoints", "pointsman_endpointslices", "pointsman_events_total",
		"pointsman_health_checks", "pointsman_healthy", "pointsman_live", "pointsman_plugin_active", "pointsman_plugin_flows",
		"pointsman_plugin_log_lines_dropped_total", "pointsman_plugin_memory_bytes", "pointsman_plugin_pending", "pointsman_plugin_repaired_total",
		"pointsman_plugin_restarts_total", "pointsman_plugin_revision", "pointsman_plugin_up", "pointsman_plugin_writer", "pointsman_ready",
		"pointsman_readyz_total", "pointsman_samples_refused_total", "pointsman_service_ports", "pointsman_services",
		"pointsman_source_reachable", "pointsman_sync_failures_total", "pointsman_unserved",
		"pointsman_waiting_seconds",
		"pointsman_warnings",
	}, name)
}

// A filter decides which samples of a dataplane are published, and collects the reasons against
// the others.
type filter struct {
	own     string            // prefix of the dataplane's own metrics
	known   map[string]known  // other metrics that it may publish
	names   map[string]metric // names in use, and by which metric
	helps   map[string]string // help texts of its own metrics
	seen    map[string]bool   // series
	series  int
	refused []string
}

func newFilter(plugin string) *filter {
	return &filter{
		own:   "pointsman_" + strings.ReplaceAll(plugin, "-", "_") + "_",
		known: allowed(),
		names: make(map[string]metric),
		helps: make(map[string]string),
		seen:  make(map[string]bool),
	}
}

// A metric is what all series of a metric have in common.
type metric struct {
	name      string
	labels    string // their names
	histogram bool
}

func metricOf(name string, labels map[string]string, histogram bool) metric {
	return metric{name, strings.Join(slices.Sorted(maps.Keys(labels)), ","), histogram}
}

// names returns the names of its series.
func (m metric) names() []string {
	if !m.histogram {
		return []string{m.name}
	}
	return []string{m.name, m.name + "_bucket", m.name + "_sum", m.name + "_count"}
}

// sample reports whether s is published.
func (f *filter) sample(s sdk.Sample) bool {
	m := metricOf(s.Name, s.Labels, false)
	why := f.checkName(m, s.Labels)
	if why == "" && f.known[s.Name].bounds != nil {
		why = "is one value, where kube-proxy's is a histogram"
	}
	return f.take(m, s.Labels, 1, why)
}

// histogram reports whether h is published.
func (f *filter) histogram(h sdk.Histogram) bool {
	m := metricOf(h.Name, h.Labels, true)
	why := f.checkName(m, h.Labels)
	if why == "" {
		why = f.checkHistogram(h)
	}
	return f.take(m, h.Labels, len(h.Bounds)+3, why)
}

// checkName returns what is wrong with a metric's name and labels, or "".
func (f *filter) checkName(m metric, labels map[string]string) string {
	k, known := f.known[m.name]
	switch want := strings.Join(k.labels, ","); {
	case !known && !strings.HasPrefix(m.name, f.own):
		return "is neither kube-proxy's nor begins with " + f.own
	case slices.ContainsFunc(m.names(), isHosts):
		return "is the host's own"
	case known && m.labels != want:
		return fmt.Sprintf("has the labels %q, where kube-proxy's has %q", m.labels, want)
	case !nameLike.MatchString(m.name) || !labelsLike(labels):
		return fmt.Sprintf("its name, or one of its labels, is no metric's; at most %d labels, values of at most %d bytes", maxLabels, maxLabelValue)
	case known && labels["ip_family"] != "" && labels["ip_family"] != "IPv4" && labels["ip_family"] != "IPv6":
		return fmt.Sprintf("has the ip_family %q, where kube-proxy's has IPv4 or IPv6", labels["ip_family"])
	}
	return ""
}

// checkHistogram returns what is wrong with a histogram's type, bounds and counts, or "".
func (f *filter) checkHistogram(h sdk.Histogram) string {
	k, known := f.known[h.Name]
	_, le := h.Labels["le"]
	switch {
	case known && k.bounds == nil:
		return "is a histogram, where kube-proxy's is one value"
	case known && !slices.Equal(h.Bounds, k.bounds):
		return "has other bounds than kube-proxy's"
	case le || len(h.Counts) != len(h.Bounds)+1 || !ascending(h.Bounds) || math.IsNaN(h.Sum):
		return "is no histogram: ascending bounds, a count for each and one more, and no label le"
	}
	return ""
}

func ascending(bounds []float64) bool {
	for i, b := range bounds {
		if math.IsNaN(b) || math.IsInf(b, 0) || i > 0 && b <= bounds[i-1] {
			return false
		}
	}
	return true
}

// take accepts a metric with the given number of series, unless why is set or it conflicts with
// earlier ones. It reports whether it was accepted.
func (f *filter) take(m metric, values map[string]string, series int, why string) bool {
	id := fmt.Sprintf("%s %q", m.name, values) // fmt prints maps in key order
	if why == "" {
		why = f.clash(m)
	}
	switch {
	case why != "":
	case f.seen[id]:
		why = "comes twice"
	case f.series+series > maxSeries:
		why = fmt.Sprintf("comes after %d other series, of at most %d", f.series, maxSeries)
	}
	if why != "" {
		f.refused = append(f.refused, fmt.Sprintf("%q %s", m.name[:min(len(m.name), maxLabelValue)], why))
		return false
	}
	for _, name := range m.names() {
		f.names[name] = m
	}
	f.seen[id] = true
	f.series += series
	return true
}

// clash describes the conflict with an earlier metric of the same name, or returns "".
func (f *filter) clash(m metric) string {
	for _, name := range m.names() {
		switch other, taken := f.names[name]; {
		case !taken || other == m:
		case other.name == m.name && other.histogram == m.histogram:
			return fmt.Sprintf("has the labels %q, and before %q", m.labels, other.labels)
		default:
			return fmt.Sprintf("has the name of series of %q", other.name)
		}
	}
	return ""
}

var nameLike = regexp.MustCompile(`^[a-z][a-z0-9_]{0,99}$`)

func labelsLike(labels map[string]string) bool {
	for name, value := range labels {
		if !nameLike.MatchString(name) || len(value) > maxLabelValue || !utf8.ValidString(value) {
			return false
		}
	}
	return len(labels) <= maxLabels
}
