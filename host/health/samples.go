// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// The bounds on what a dataplane may publish: each series costs Prometheus memory
// on every node of the cluster.
const (
	maxSamples    = 256 // series
	maxLabels     = 3
	maxLabelValue = 64 // bytes
)

// allowed are kube-proxy's metrics that only a dataplane can know, with their
// labels. Besides, a dataplane publishes under its own name: pointsman_NAME_….
func allowed() map[string][]string {
	return map[string][]string{
		"kubeproxy_sync_proxy_rules_iptables_total":                              {"ip_family", "table"},
		"kubeproxy_sync_proxy_rules_iptables_last":                               {"ip_family", "table"},
		"kubeproxy_sync_proxy_rules_iptables_restore_failures_total":             {"ip_family"},
		"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total":     {"ip_family"},
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total":                {"ip_family"},
		"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total":             {"ip_family"},
		"kubeproxy_iptables_ct_state_invalid_dropped_packets_total":              nil,
		"kubeproxy_iptables_localhost_nodeports_accepted_packets_total":          nil,
		"kubeproxy_conntrack_reconciler_deleted_entries_total":                   {"ip_family"},
		"kubeproxy_localhost_nodeport_listeners":                                 nil,
		"kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total": nil,
		"kubeproxy_nftables_localhost_nodeport_rejected_packets_total":           {"protocol"},
	}
}

// gauges are those of allowed whose names end as a counter's do.
func gauges() []string { return []string{"kubeproxy_sync_proxy_rules_iptables_total"} }

// samples publishes what the dataplane that serves counts.
type samples struct {
	report func(track.Notice)

	mu      sync.Mutex // guards what follows
	told    string     // the last refusal
	refused int        // so far
}

// emit publishes p's samples, but for those that are refused.
func (s *samples) emit(e emitter, p Plane) {
	good, bad := judge(p.Name, p.Report.Samples)
	for _, m := range good {
		labels := make([]pair, 0, len(m.Labels))
		for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
			labels = append(labels, pair{name, m.Labels[name]})
		}
		e.emit(m.Name, "As the "+p.Name+" dataplane counts it.", kindOf(m.Name), m.Value, labels)
	}
	s.say(p.Name, bad)
}

// say counts refusals, and reports them when they are others than before.
func (s *samples) say(plugin string, bad []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused += len(bad)
	text := strings.Join(bad[:min(len(bad), 3)], "; ")
	if text != "" && text != s.told {
		s.report(track.Notice{Warning: true, Reason: SampleRefused, Object: plugin, Message: fmt.Sprintf("%d of its metrics are not published: %s", len(bad), text)})
	}
	s.told = text
}

// count is how many were refused so far.
func (s *samples) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

func kindOf(name string) prometheus.ValueType {
	if strings.HasSuffix(name, "_total") && !slices.Contains(gauges(), name) {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// judge decides which of a dataplane's samples are published, and says why the
// others are not. All samples of one name must have the same labels.
func judge(plugin string, list []sdk.Sample) (good []sdk.Sample, bad []string) {
	known := allowed()
	own := "pointsman_" + strings.ReplaceAll(plugin, "-", "_") + "_"
	labels := make(map[string]string)
	seen := make(map[string]bool)
	for _, m := range list {
		names := strings.Join(slices.Sorted(maps.Keys(m.Labels)), ",")
		series := m.Name + text(m.Labels)
		first, again := labels[m.Name]
		want, isKnown := known[m.Name]
		var why string
		switch {
		case !isKnown && !strings.HasPrefix(m.Name, own):
			why = "is neither kube-proxy's nor begins with " + own
		case !nameLike.MatchString(m.Name) || !isKnown && !labelled(m.Labels):
			why = fmt.Sprintf("its name, or one of its labels, is no metric's; at most %d labels, values of at most %d bytes", maxLabels, maxLabelValue)
		case isKnown && names != strings.Join(want, ","):
			why = fmt.Sprintf("has the labels %q, where kube-proxy's has %q", names, strings.Join(want, ","))
		case again && first != names:
			why = fmt.Sprintf("has the labels %q, and before %q", names, first)
		case seen[series]:
			why = "comes twice"
		case len(good) == maxSamples:
			why = fmt.Sprintf("comes after %d others", maxSamples)
		}
		if why != "" {
			bad = append(bad, fmt.Sprintf("%q %s", cut(m.Name), why))
			continue
		}
		labels[m.Name], seen[series] = names, true
		good = append(good, m)
	}
	return good, bad
}

var nameLike = regexp.MustCompile(`^[a-z][a-z0-9_]{0,99}$`)

func labelled(labels map[string]string) bool {
	for name, value := range labels {
		if !nameLike.MatchString(name) || len(value) > maxLabelValue || !utf8.ValidString(value) {
			return false
		}
	}
	return len(labels) <= maxLabels
}

func text(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.SortedFunc(maps.Keys(labels), cmp.Compare[string]) {
		fmt.Fprintf(&b, "|%s=%s", name, labels[name])
	}
	return b.String()
}

func cut(name string) string { return name[:min(len(name), maxLabelValue)] }
