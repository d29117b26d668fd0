// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/pointsman/pointsman/sdk"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// busy returns a harness with an event for each counter.
func busy(t *testing.T) *harness {
	t.Helper()
	b := newHarness(func(s *Settings) { s.Warnings = func() map[string]int { return map[string]int{"W009": 1} } })
	b.setDataplane(func(p *Dataplane) {
		p.Since = b.now.Add(-time.Second)
		p.Pending, p.Restarts, p.Sent, p.Acked, p.Writer = 2, 3, 9, 8, true
		p.Dropped = map[string]uint64{sdk.DropNoEndpoint: 5}
		p.Unserved = map[string]int{Failed: 1, Refused: 2}
		p.Report = sdk.Report{Repaired: 4, Samples: []sdk.Sample{
			{Name: "kubeproxy_sync_proxy_rules_iptables_total", Labels: map[string]string{"table": "nat", "ip_family": "IPv4"}, Value: 120},
			{Name: "pointsman_iptables_x_total", Value: 7},
			{Name: "node_boot_time_seconds", Value: 1},
		}, Histograms: []sdk.Histogram{forgetting()}}
	})
	b.Applied(Applied{Families: []sdk.Family{sdk.IPv4}, Full: true, Took: 3 * time.Millisecond, Triggers: []time.Time{b.now.Add(-700 * time.Millisecond)}})
	b.Applied(Applied{Families: []sdk.Family{sdk.IPv4, sdk.IPv6}, Took: 5 * time.Millisecond})
	b.Failed()
	b.tracker.SetService(service("web", 0))
	b.tracker.SetSlice(slice("web"))
	b.tracker.SetSlice(slice("web", "10.1.0.1"))
	b.Requested("GET", "10.0.0.1:6443", "200", 30*time.Millisecond)
	b.codes()
	b.fault = "the API server does not answer"
	return b
}

// forgetting returns the histogram that dataplanes report.
func forgetting() sdk.Histogram {
	h := sdk.NewHistogram("kubeproxy_conntrack_reconciler_sync_duration_seconds", map[string]string{"ip_family": "IPv6"}, syncBuckets()...)
	h.Observe(0.003)
	h.Observe(99)
	return h
}

// scrape returns the metrics of /metrics and /metrics/slis.
func scrape(t *testing.T, b *harness) map[string]*dto.MetricFamily {
	t.Helper()
	all := make(map[string]*dto.MetricFamily)
	families, err := b.Gather()
	if err != nil {
		t.Fatal(err)
	}
	slis, err := b.metrics.slis.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range slices.Concat(families, slis) {
		all[f.GetName()] = f
	}
	return all
}

// series prints the values of one metric.
func series(f *dto.MetricFamily) string {
	var lines []string
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
		if h := m.GetHistogram(); h != nil {
			value = float64(h.GetSampleCount())
		}
		lines = append(lines, fmt.Sprintf("%s %g", strings.Join(labels, ","), value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// TestMetrics compares the values of metrics.
func TestMetrics(t *testing.T) {
	b := busy(t)
	all := scrape(t, b)
	for name, want := range map[string]string{
		"kubeproxy_sync_proxy_rules_duration_seconds":          "ip_family=IPv4 2; ip_family=IPv6 1",
		"kubeproxy_sync_full_proxy_rules_duration_seconds":     "ip_family=IPv4 1",
		"kubeproxy_sync_partial_proxy_rules_duration_seconds":  "ip_family=IPv4 1; ip_family=IPv6 1",
		"kubeproxy_network_programming_duration_seconds":       "ip_family=IPv4 1",
		"kubeproxy_sync_proxy_rules_service_changes_total":     " 1",
		"kubeproxy_sync_proxy_rules_service_changes_pending":   " 1",
		"kubeproxy_sync_proxy_rules_endpoint_changes_total":    " 2",
		"kubeproxy_sync_proxy_rules_endpoint_changes_pending":  " 2",
		"kubeproxy_sync_proxy_rules_no_local_endpoints_total":  "ip_family=IPv4,traffic_policy=external 0; ip_family=IPv4,traffic_policy=internal 0; ip_family=IPv6,traffic_policy=external 0; ip_family=IPv6,traffic_policy=internal 0",
		"kubeproxy_sync_proxy_rules_iptables_total":            "ip_family=IPv4,table=nat 120",
		"kubeproxy_proxy_healthz_total":                        "code=200 1",
		"kubeproxy_conntrack_reconciler_sync_duration_seconds": "ip_family=IPv6 2",
		"pointsman_iptables_x_total":                           " 7",
		"pointsman_dropped_packets_total":                      "reason=no_endpoint 5",
		"pointsman_events_total":                               "reason=PluginDown 3",
		"pointsman_warnings":                                   "code=W001 0; code=W009 1; code=W013 0; code=W014 0; code=W015 0; code=W016 0; code=W022 0; code=W023 0; code=W024 0",
		"pointsman_plugin_revision":                            "plugin=iptables,state=acked 8; plugin=iptables,state=sent 9; plugin=iptables,state=served 8",
		"pointsman_plugin_writer":                              "plugin=iptables 1",
		"pointsman_unserved":                                   "plugin=iptables,why=conflict 0; plugin=iptables,why=failed 1; plugin=iptables,why=invalid 0; plugin=iptables,why=refused 2; plugin=iptables,why=withheld 0",
		"pointsman_samples_refused_total":                      " 1",
		"pointsman_source_reachable":                           " 0",
		"pointsman_sync_failures_total":                        " 1",
		"pointsman_ready":                                      " 1",
		"rest_client_requests_total":                           "code=200,host=10.0.0.1:6443,method=GET 1",
		"kubernetes_healthchecks_total":                        "name=proxy,status=success,type=healthz 1; name=proxy,status=success,type=livez 1; name=proxy,status=success,type=readyz 1",
	} {
		if got := series(all[name]); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	if all["kubeproxy_sync_proxy_rules_iptables_total"].GetType() != dto.MetricType_GAUGE || all["pointsman_iptables_x_total"].GetType() != dto.MetricType_COUNTER {
		t.Error("a sample has the wrong type")
	}
	for name, want := range map[string]string{
		"kubeproxy_sync_proxy_rules_iptables_total": "Rules installed.",
		"pointsman_iptables_x_total":                "Of the iptables dataplane: x total.",
	} {
		if got := all[name].GetHelp(); got != want {
			t.Errorf("%s has the help %q, want %q", name, got, want)
		}
	}
	if got := b.reasons(); !slices.Equal(got, []string{SampleRefused}) {
		t.Errorf("reported %v", got)
	}
}

// TestBuckets compares the bounds with kube-proxy's: their number, and some of them.
func TestBuckets(t *testing.T) {
	all := scrape(t, busy(t))
	bounds := func(name string, at ...int) string {
		buckets := all[name].GetMetric()[0].GetHistogram().GetBucket()
		text := fmt.Sprint(len(buckets))
		for _, i := range at {
			text += fmt.Sprintf(" %g", buckets[i].GetUpperBound())
		}
		return text
	}
	for _, name := range []string{"kubeproxy_sync_proxy_rules_duration_seconds", "kubeproxy_conntrack_reconciler_sync_duration_seconds"} {
		if got, want := bounds(name, 0, 1, 14), "15 0.001 0.002 16.384"; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got, want := bounds("kubeproxy_network_programming_duration_seconds", 0, 1, 2, 3, 61, 62, 63, 73, 74, 75, 80), "81 0 0.25 0.5 1 59 60 65 115 120 150 300"; got != want {
		t.Errorf("programming: %s, want %s", got, want)
	}
	h := all["kubeproxy_conntrack_reconciler_sync_duration_seconds"].GetMetric()[0].GetHistogram()
	if b := h.GetBucket(); b[1].GetCumulativeCount() != 0 || b[2].GetCumulativeCount() != 1 || b[14].GetCumulativeCount() != 1 || h.GetSampleCount() != 2 || h.GetSampleSum() != 99.003 {
		t.Errorf("forgetting took %v", h)
	}
}

// TestDocumented compares the tables of docs/metrics.md with the metrics; with POINTSMAN_UPDATE_DOCS it writes them.
func TestDocumented(t *testing.T) {
	const file, begin, end = "../../docs/metrics.md", "<!-- generated by POINTSMAN_UPDATE_DOCS=1 go test ./host/health: %s -->\n", "<!-- end -->"
	docs, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(docs)
	put := func(block string, rows []string) {
		t.Helper()
		head, rest, begins := strings.Cut(want, fmt.Sprintf(begin, block))
		_, tail, ends := strings.Cut(rest, end)
		if !begins || !ends || len(rows) < 10 {
			t.Fatalf("%s has no place for the %d metrics of %s", file, len(rows), block)
		}
		slices.Sort(rows)
		want = head + fmt.Sprintf(begin, block) + "| metric | labels | meaning |\n|---|---|---|\n" + strings.Join(rows, "") + end + tail
	}
	row := func(name string, labels []string, help string) string {
		for i, label := range labels {
			labels[i] = "`" + label + "`"
		}
		return strings.ReplaceAll(fmt.Sprintf("| `%s` | %s | %s |\n", name, strings.Join(labels, ", "), help), "|  |", "| |")
	}
	var host, dataplanes []string
	for name, f := range scrape(t, busy(t)) {
		_, isDataplanes := known[name]
		if isDataplanes || name == "pointsman_iptables_x_total" || regexp.MustCompile(`^(go|process)_|^promhttp_`).MatchString(name) {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		host = append(host, row(name, labels, f.GetHelp()))
	}
	for name, k := range known {
		dataplanes = append(dataplanes, row(name, strings.FieldsFunc(k.labels, func(r rune) bool { return r == ',' }), k.help))
	}
	put("the host", host)
	put("dataplanes", dataplanes)
	if os.Getenv("POINTSMAN_UPDATE_DOCS") != "" {
		err = os.WriteFile(file, []byte(want), 0o644)
	} else if want != string(docs) {
		err = fmt.Errorf("%s does not match the metrics; try: POINTSMAN_UPDATE_DOCS=1 go test ./host/health -run TestDocumented", file)
	}
	if err != nil {
		t.Error(err)
	}
}
