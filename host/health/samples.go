// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// samples gathers the metrics that the serving dataplane reports.
type samples struct {
	settings Settings
	refused  prometheus.Counter

	mu   sync.Mutex // guards last
	last string     // the last reported refusals
}

// Gather implements prometheus.Gatherer.
func (s *samples) Gather() ([]*dto.MetricFamily, error) {
	dataplanes := s.settings.Dataplanes()
	if len(dataplanes) == 0 {
		return nil, nil
	}
	families, refused := publish(dataplanes[0])
	s.reportRefused(dataplanes[0].Name, refused)
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

// reportRefused counts refusals, and reports them if they differ from the previous ones.
func (s *samples) reportRefused(plugin string, bad []string) {
	s.refused.Add(float64(len(bad)))
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(bad[:min(len(bad), 3)], "; ")
	if text != "" && text != s.last {
		s.settings.Report(track.Notice{Warning: true, Reason: SampleRefused, Object: plugin, Message: fmt.Sprintf("%d of its metrics are not published: %s", len(bad), text)})
	}
	s.last = text
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

// hostsNames matches names of the host's own metrics that a dataplane named, for example, "plugin" or "health" could
// otherwise publish.
var hostsNames = regexp.MustCompile(`^pointsman_(build|dropped|events|health|plugin|readyz|samples|service|source|sync|waiting)_`)

// A filter is a prometheus.Collector of the samples of a dataplane that may be published, and
// collects the reasons against the others.
type filter struct {
	plugin  string
	report  sdk.Report
	own     string            // prefix of the dataplane's own metrics
	known   map[string]known  // other metrics that it may publish
	helps   map[string]string // help texts of its own metrics
	series  int
	refused []string
}

func newFilter(p Dataplane) *filter {
	return &filter{
		plugin: p.Name, report: p.Report,
		own:   "pointsman_" + strings.ReplaceAll(p.Name, "-", "_") + "_",
		known: allowed(),
		helps: make(map[string]string),
	}
}

// Describe sends nothing, because the set of metrics depends on the dataplane.
func (f *filter) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (f *filter) Collect(out chan<- prometheus.Metric) {
	e := emitter(out)
	for _, h := range f.report.Histograms {
		if f.accept(h.Name, h.Labels, len(h.Bounds)+3, f.checkHistogram(h)) {
			e.histogram(h, f.help(h.Name, h.Help))
		}
	}
	for _, s := range f.report.Samples {
		why := ""
		if f.known[s.Name].bounds != nil {
			why = "is one value, where kube-proxy's is a histogram"
		}
		if f.accept(s.Name, s.Labels, 1, why) {
			e.emit(s.Name, f.help(s.Name, s.Help), kindOf(s.Name), s.Value, s.Labels)
		}
	}
}

// accept reports whether a metric with the given number of series is published. If why is not empty, it is a reason
// against that.
func (f *filter) accept(name string, labels map[string]string, series int, why string) bool {
	if wrong := f.checkName(name, labels); wrong != "" {
		why = wrong
	}
	if why == "" && f.series+series > maxSeries {
		why = fmt.Sprintf("comes after %d other series, of at most %d", f.series, maxSeries)
	}
	if why != "" {
		f.refused = append(f.refused, fmt.Sprintf("%q %s", name[:min(len(name), maxLabelValue)], why))
		return false
	}
	f.series += series
	return true
}

// help returns the help text of a metric: the plugin's, or else one derived from the name. All
// series of a metric must have the same text.
func (f *filter) help(name, said string) string {
	if k, known := f.known[name]; known {
		return k.help
	}
	if f.helps[name] == "" {
		f.helps[name] = cmp.Or(said, "Of the "+f.plugin+" dataplane: "+strings.ReplaceAll(strings.TrimPrefix(name, f.own), "_", " ")+".")
	}
	return f.helps[name]
}

// checkName returns what is wrong with a metric's name and labels, or "".
func (f *filter) checkName(name string, labels map[string]string) string {
	k, known := f.known[name]
	want, got := strings.Join(k.labels, ","), strings.Join(slices.Sorted(maps.Keys(labels)), ",")
	switch {
	case !known && !strings.HasPrefix(name, f.own):
		return "is neither kube-proxy's nor begins with " + f.own
	case hostsNames.MatchString(name):
		return "is the host's own"
	case known && got != want:
		return fmt.Sprintf("has the labels %q, where kube-proxy's has %q", got, want)
	case !nameLike.MatchString(name) || !labelsLike(labels):
		return fmt.Sprintf("has an invalid name or invalid labels; want at most %d labels, with values of at most %d bytes", maxLabels, maxLabelValue)
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
		return "is not a valid histogram; want ascending bounds, a count for each bound and one more, and no label le"
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

var nameLike = regexp.MustCompile(`^[a-z][a-z0-9_]{0,99}$`)

func labelsLike(labels map[string]string) bool {
	for name, value := range labels {
		if !nameLike.MatchString(name) || len(value) > maxLabelValue || !utf8.ValidString(value) {
			return false
		}
	}
	return len(labels) <= maxLabels
}
