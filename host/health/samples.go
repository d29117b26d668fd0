// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// samples gathers the metrics that the serving dataplane reports.
type samples struct {
	settings Settings
	refused  prometheus.Counter
}

// Gather implements prometheus.Gatherer. It counts and reports the metrics that are not published.
func (s *samples) Gather() ([]*dto.MetricFamily, error) {
	dataplanes := s.settings.Dataplanes()
	if len(dataplanes) == 0 {
		return nil, nil
	}
	families, bad := publish(dataplanes[0])
	s.refused.Add(float64(len(bad)))
	if len(bad) > 0 {
		s.settings.Report(track.Notice{Warning: true, Reason: SampleRefused, Object: dataplanes[0].Name, Message: fmt.Sprintf("%d of its metrics are not published: %s", len(bad), strings.Join(bad[:min(len(bad), 3)], "; "))})
	}
	return families, nil
}

// publish returns the metrics of p, and why some are not published: a filter refuses them, or a
// registry finds that they contradict others.
func publish(p Dataplane) (families []*dto.MetricFamily, refused []string) {
	f, registry := newFilter(p), prometheus.NewRegistry()
	registry.MustRegister(f)
	families, err := registry.Gather()
	contradictions, several := errors.AsType[prometheus.MultiError](err)
	if err != nil && !several {
		contradictions = prometheus.MultiError{err}
	}
	for _, err := range contradictions {
		f.refused = append(f.refused, err.Error())
	}
	return families, f.refused
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
	maxSeries = 256
	maxLabels = 3
	maxText   = 100 // bytes of a name or a label's value
)

// known are the metrics of kube-proxy that only a dataplane can measure, with their labels in
// order. A dataplane may also publish metrics with its own prefix, pointsman_NAME_.
var known = map[string]struct{ labels, help string }{
	"kubeproxy_sync_proxy_rules_iptables_total":                              {"ip_family,table", "Rules installed."},
	"kubeproxy_sync_proxy_rules_iptables_last":                               {"ip_family,table", "Rules written by the last update."},
	"kubeproxy_sync_proxy_rules_iptables_restore_failures_total":             {"ip_family", "Writes that iptables rejected."},
	"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total":     {"ip_family", "Partial writes that iptables rejected."},
	"kubeproxy_sync_proxy_rules_nftables_sync_failures_total":                {"ip_family", "Batches that the kernel rejected."},
	"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total":             {"ip_family", "Batches that only remove elements, and that the kernel rejected."},
	"kubeproxy_iptables_ct_state_invalid_dropped_packets_total":              {"", "Packets dropped because they belong to no connection."},
	"kubeproxy_iptables_localhost_nodeports_accepted_packets_total":          {"", "Packets to a node port on a loopback address."},
	"kubeproxy_conntrack_reconciler_sync_duration_seconds":                   {"ip_family", "Time of a search for stale UDP flows, as a part of an update."},
	"kubeproxy_conntrack_reconciler_deleted_entries_total":                   {"ip_family", "Stale UDP flows deleted."},
	"kubeproxy_nftables_localhost_nodeport_listeners":                        {"ip_family", "Listeners for node ports on loopback addresses."},
	"kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total": {"ip_family", "Listeners for node ports on loopback addresses that failed to open."},
	"kubeproxy_nftables_localhost_nodeport_rejected_packets_total":           {"ip_family,protocol", "Packets to node ports on loopback addresses that were rejected."},
}

// A filter is a prometheus.Collector of the samples of a dataplane that may be published, and
// collects the reasons against the others.
type filter struct {
	plugin  string
	report  sdk.Report
	own     string            // prefix of the dataplane's own metrics
	helps   map[string]string // help texts of its own metrics
	series  int
	refused []string
}

func newFilter(p Dataplane) *filter {
	return &filter{plugin: p.Name, report: p.Report, own: "pointsman_" + strings.ReplaceAll(p.Name, "-", "_") + "_", helps: make(map[string]string)}
}

// Describe sends nothing, because the set of metrics depends on the dataplane.
func (f *filter) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (f *filter) Collect(out chan<- prometheus.Metric) {
	e := emitter(out)
	for _, h := range f.report.Histograms {
		if f.accept(h.Name, h.Labels, len(h.Bounds)+3, len(h.Counts) == len(h.Bounds)+1) {
			e.histogram(h, f.help(h.Name, h.Help))
		}
	}
	for _, s := range f.report.Samples {
		if f.accept(s.Name, s.Labels, 1, true) {
			e.emit(s.Name, f.help(s.Name, s.Help), kindOf(s.Name), s.Value, s.Labels)
		}
	}
}

// accept reports whether a metric with the given number of series is published, and otherwise
// records the reason. The registry refuses other invalid metrics. It does not refuse the label le,
// which makes a whole scrape invalid.
func (f *filter) accept(name string, labels map[string]string, series int, valid bool) bool {
	k, is := known[name]
	_, le := labels["le"]
	got, why := strings.Join(slices.Sorted(maps.Keys(labels)), ","), ""
	long := func(text string) bool { return len(text) > maxText }
	switch {
	case !is && !strings.HasPrefix(name, f.own):
		why = "is neither kube-proxy's nor begins with " + f.own
	case is && got != k.labels:
		why = fmt.Sprintf("has the labels %q, where kube-proxy's has %q", got, k.labels)
	case le || !valid:
		why = "is invalid; want no label le, and for a histogram a count for each bound and one more"
	case len(labels) > maxLabels || long(name) || slices.ContainsFunc(slices.Collect(maps.Values(labels)), long):
		why = fmt.Sprintf("is too large; want at most %d labels, and names and values of at most %d bytes", maxLabels, maxText)
	case f.series+series > maxSeries:
		why = fmt.Sprintf("comes after %d other series, of at most %d", f.series, maxSeries)
	default:
		f.series += series
		return true
	}
	f.refused = append(f.refused, fmt.Sprintf("%q %s", name[:min(len(name), maxText)], why))
	return false
}

// help returns the help text of a metric: the plugin's, or else one derived from the name. All
// series of a metric must have the same text.
func (f *filter) help(name, said string) string {
	if k, is := known[name]; is {
		return k.help
	}
	if f.helps[name] == "" {
		f.helps[name] = cmp.Or(said, "Of the "+f.plugin+" dataplane: "+strings.ReplaceAll(strings.TrimPrefix(name, f.own), "_", " ")+".")
	}
	return f.helps[name]
}
