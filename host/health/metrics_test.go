// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"math"
	"net"
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

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// busy is a harness on which everything has happened that is counted.
func busy(t *testing.T) *harness {
	t.Helper()
	b := newHarness()
	b.setDataplane(func(p *Dataplane) {
		p.Since = b.now.Add(-time.Second)
		p.Pending, p.Restarts, p.Sent, p.Acked, p.Served, p.Failed, p.Writer = 2, 3, 9, 8, 7, 1, true
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
	return b
}

// forgetting is the histogram that dataplanes report.
func forgetting() sdk.Histogram {
	h := sdk.NewHistogram("kubeproxy_conntrack_reconciler_sync_duration_seconds", map[string]string{"ip_family": "IPv6"}, syncBuckets()...)
	h.Observe(0.003)
	h.Observe(99)
	return h
}

// scrape is all that /metrics and /metrics/slis say.
func scrape(t *testing.T, b *harness) map[string]*dto.MetricFamily {
	t.Helper()
	all := make(map[string]*dto.MetricFamily)
	families, err := b.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	slis, err := b.metrics.slis.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(families, slis...) {
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

// TestMetrics reads what a busy hour comes to.
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
		"pointsman_events_total":                               "reason=PluginDown 3",
		"pointsman_plugin_revision":                            "plugin=iptables,state=acked 8; plugin=iptables,state=sent 9; plugin=iptables,state=served 7",
		"pointsman_plugin_writer":                              "plugin=iptables 1",
		"pointsman_unserved":                                   "plugin=iptables,why=failed 1; plugin=iptables,why=kept 0; plugin=iptables,why=withheld 0",
		"pointsman_samples_refused_total":                      " 1",
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
	if got := b.reasons(); !slices.Equal(got, []string{SampleRefused}) {
		t.Errorf("told of %v", got)
	}
	scrape(t, b)
	if got := b.reasons(); len(got) != 1 {
		t.Errorf("told again: %v", got)
	}
}

// TestBuckets holds the bounds to kube-proxy's.
func TestBuckets(t *testing.T) {
	all := scrape(t, busy(t))
	bounds := func(name string) (list []float64) {
		for _, b := range all[name].GetMetric()[0].GetHistogram().GetBucket() {
			list = append(list, b.GetUpperBound())
		}
		return list
	}
	sync := bounds("kubeproxy_sync_proxy_rules_duration_seconds")
	if len(sync) != 15 || sync[0] != 0.001 || sync[14] != 16.384 {
		t.Errorf("sync: %v", sync)
	}
	var want []float64
	want = append(want, 0, 0.25, 0.5)
	for s := 1; s < 60; s++ {
		want = append(want, float64(s))
	}
	for s := 60; s <= 115; s += 5 {
		want = append(want, float64(s))
	}
	for s := 120; s <= 300; s += 30 {
		want = append(want, float64(s))
	}
	if got := bounds("kubeproxy_conntrack_reconciler_sync_duration_seconds"); !slices.Equal(got, sync) {
		t.Errorf("forgetting: %v, not %v", got, sync)
	}
	h := all["kubeproxy_conntrack_reconciler_sync_duration_seconds"].GetMetric()[0].GetHistogram()
	if b := h.GetBucket(); b[1].GetCumulativeCount() != 0 || b[2].GetCumulativeCount() != 1 || b[14].GetCumulativeCount() != 1 || h.GetSampleCount() != 2 || h.GetSampleSum() != 99.003 {
		t.Errorf("forgetting took %v", h)
	}
	if got := bounds("kubeproxy_network_programming_duration_seconds"); !slices.Equal(got, want) {
		t.Errorf("programming: %v\nwant %v", got, want)
	}
}

// TestDocumented holds docs/metrics.md to what is served, both ways.
func TestDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)`").FindAllStringSubmatch(string(docs), -1) {
		documented[m[1]] = true
	}
	all := scrape(t, busy(t))
	for name := range all {
		if generic := regexp.MustCompile(`^(go|process)_|^promhttp_`).MatchString(name); !generic && name != "pointsman_iptables_x_total" && !documented[name] {
			t.Errorf("%s is served, and is not in docs/metrics.md", name)
		}
	}
	for name := range allowed() {
		if !documented[name] {
			t.Errorf("%s may be served, and is not in docs/metrics.md", name)
		}
	}
	for name := range documented {
		_, may := allowed()[name]
		if all[name] == nil && !may && !regexp.MustCompile(`^pointsman_(ipvs|userspace)_`).MatchString(name) { // those are dataplanes' own
			t.Errorf("docs/metrics.md has %s, which is not served", name)
		}
	}
}

// TestFilter decides on samples one by one.
func TestFilter(t *testing.T) {
	one := func(name string, labels ...string) sdk.Sample {
		s := sdk.Sample{Name: name}
		for i := 0; i < len(labels); i += 2 {
			if s.Labels == nil {
				s.Labels = make(map[string]string)
			}
			s.Labels[labels[i]] = labels[i+1]
		}
		return s
	}
	for _, test := range []struct {
		sample sdk.Sample
		want   string // in why it is refused; empty: it is not
	}{
		{one("pointsman_my_relay_open"), ""},
		{one("pointsman_my_relay_bytes_total", "direction", "in"), ""},
		{one("kubeproxy_conntrack_reconciler_deleted_entries_total", "ip_family", "IPv4"), ""},
		{one("pointsman_iptables_open"), "neither"},
		{one("pointsman_ready"), "neither"},
		{one("up"), "neither"},
		{one(""), "neither"},
		{one("kubeproxy_sync_proxy_rules_duration_seconds"), "neither"},
		{one("kubeproxy_conntrack_reconciler_deleted_entries_total"), "has the labels"},
		{one("kubeproxy_sync_proxy_rules_iptables_last", "table", "nat", "service", "x"), "has the labels"},
		{one("pointsman_my_relay_Öpen"), "is no metric's"},
		{one("pointsman_my_relay_x", "l", strings.Repeat("x", 65)), "is no metric's"},
		{one("pointsman_my_relay_x", "l", "\xff"), "is no metric's"},
		{one("pointsman_my_relay_x", "a", "", "b", "", "c", "", "d", ""), "is no metric's"},
	} {
		j := newFilter("my-relay")
		if good := j.sample(test.sample); good != (test.want == "") || !strings.Contains(strings.Join(j.refused, ""), test.want) {
			t.Errorf("%v: %t, %q; want %q", test.sample, good, j.refused, test.want)
		}
	}
	j := newFilter("r")
	for _, s := range []sdk.Sample{one("pointsman_r_x", "a", "1"), one("pointsman_r_x", "a", "1"), one("pointsman_r_x", "b", "1")} {
		j.sample(s)
	}
	if text := strings.Join(j.refused, "\n"); !strings.Contains(text, "comes twice") || !strings.Contains(text, `has the labels "b", and before "a"`) {
		t.Errorf("of one name: %s", text)
	}
	j = newFilter("r")
	for i := range 1000 {
		j.sample(one("pointsman_r_x", "service", fmt.Sprint(i)))
	}
	if len(j.refused) != 1000-maxSeries {
		t.Errorf("of a thousand series %d are published", 1000-len(j.refused))
	}
}

// TestHostsNames keeps a dataplane from the host's own names, whatever it is called.
func TestHostsNames(t *testing.T) {
	served := 0
	for name := range scrape(t, busy(t)) {
		rest, ours := strings.CutPrefix(name, "pointsman_")
		if !ours || strings.HasPrefix(rest, "iptables_") {
			continue
		}
		served++
		if !isHosts(name) {
			t.Errorf("%s is the host's, and not known as such", name)
		}
		word, _, _ := strings.Cut(rest, "_")
		j := newFilter(word)
		if word != rest && (j.sample(sdk.Sample{Name: name}) || !strings.Contains(j.refused[0], "the host's own")) {
			t.Errorf("a dataplane called %s may publish %s: %q", word, name, j.refused)
		}
	}
	if served < 20 {
		t.Errorf("the host has only %d metrics", served)
	}
	b := newHarness()
	b.setDataplane(func(p *Dataplane) {
		p.Name = "plugin"
		p.Report.Samples = []sdk.Sample{{Name: "pointsman_plugin_up", Labels: map[string]string{"plugin": "plugin"}, Value: 7}, {Name: "pointsman_plugin_jam", Value: 2}}
	})
	all := scrape(t, b) // fails of a metric that is there twice
	if up, jam := series(all["pointsman_plugin_up"]), series(all["pointsman_plugin_jam"]); up != "plugin=plugin 1" || jam != " 2" {
		t.Errorf("up %q, jam %q", up, jam)
	}
}

// TestFilterHistogram decides on histograms one by one.
func TestFilterHistogram(t *testing.T) {
	own := func(bounds ...float64) sdk.Histogram { return sdk.NewHistogram("pointsman_r_took", nil, bounds...) }
	for name, test := range map[string]struct {
		change func(*sdk.Histogram)
		want   string // in why it is refused; empty: it is not
	}{
		"kube-proxy's":     {func(h *sdk.Histogram) { *h = forgetting() }, ""},
		"own":              {func(h *sdk.Histogram) {}, ""},
		"foreign":          {func(h *sdk.Histogram) { h.Name = "x" }, "neither"},
		"of one value":     {func(h *sdk.Histogram) { h.Name = "kubeproxy_localhost_nodeport_listeners" }, "where kube-proxy's is one value"},
		"other bounds":     {func(h *sdk.Histogram) { *h = forgetting(); h.Bounds[3]++ }, "other bounds"},
		"other labels":     {func(h *sdk.Histogram) { *h = forgetting(); h.Labels["table"] = "" }, "where kube-proxy's has"},
		"other family":     {func(h *sdk.Histogram) { *h = forgetting(); h.Labels["ip_family"] = "ipv6" }, "IPv4 or IPv6"},
		"label of buckets": {func(h *sdk.Histogram) { h.Labels = map[string]string{"le": "1"} }, "is no histogram"},
		"a count lacks":    {func(h *sdk.Histogram) { h.Counts = h.Counts[1:] }, "is no histogram"},
		"descending":       {func(h *sdk.Histogram) { *h = own(2, 1) }, "is no histogram"},
		"equal bounds":     {func(h *sdk.Histogram) { *h = own(1, 1) }, "is no histogram"},
		"infinite":         {func(h *sdk.Histogram) { *h = own(math.Inf(1)) }, "is no histogram"},
		"no number":        {func(h *sdk.Histogram) { *h = own(math.NaN()) }, "is no histogram"},
		"no sum":           {func(h *sdk.Histogram) { h.Sum = math.NaN() }, "is no histogram"},
		"many":             {func(h *sdk.Histogram) { *h = own(ascend(300)...) }, "other series"},
	} {
		h := own(1, 2)
		test.change(&h)
		j := newFilter("r")
		if good := j.histogram(h); good != (test.want == "") || !strings.Contains(strings.Join(j.refused, ""), test.want) {
			t.Errorf("%s: %t, %q; want %q", name, good, j.refused, test.want)
		}
	}
	j := newFilter("r")
	j.histogram(own(1, 2))
	j.sample(sdk.Sample{Name: "pointsman_r_took_count"})
	j.sample(sdk.Sample{Name: "pointsman_r_took"})
	j.histogram(own(1, 2))
	j.sample(sdk.Sample{Name: "kubeproxy_conntrack_reconciler_sync_duration_seconds", Labels: map[string]string{"ip_family": "IPv4"}})
	if text := strings.Join(j.refused, "\n"); len(j.refused) != 4 || strings.Count(text, "series of") != 2 || !strings.Contains(text, "twice") || !strings.Contains(text, "is a histogram") {
		t.Errorf("beside a histogram: %s", text)
	}
}

func ascend(n int) (list []float64) {
	for i := range n {
		list = append(list, float64(i))
	}
	return list
}

// TestMachineAddrs finds the machine's own address, whatever others it has.
func TestMachineAddrs(t *testing.T) {
	devices, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[Addr]bool)
	for _, d := range devices {
		list, err := d.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list {
			ip := a.(*net.IPNet).IP
			addr, _ := netip.AddrFromSlice(ip)
			want[Addr{addr.Unmap(), d.Name}] = true
		}
	}
	got := machineAddrs()
	if len(want) == 0 || len(got) != len(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for _, a := range got {
		if !want[a] {
			t.Errorf("%v is none of %v", a, want)
		}
	}
}

// TestWhere decides where health checks are answered.
func TestWhere(t *testing.T) {
	machine := []Addr{
		{addr("127.0.0.1"), "lo"}, {addr("::1"), "lo"}, {addr("10.0.0.5"), "eth0"}, {addr("10.0.1.5"), "eth1"},
		{addr("fd00::5"), "eth0"}, {addr("fe80::1"), "eth0"}, {addr("10.0.0.77"), "kube-ipvs0"},
	}
	for _, test := range []struct {
		ranges []netip.Prefix
		want   string
	}{
		{nil, "[]"},
		{prefixes("0.0.0.0/0", "::/0"), "[0.0.0.0 ::]"},
		{prefixes("0.0.0.0/0"), "[0.0.0.0]"},
		{prefixes("10.0.0.0/24"), "[10.0.0.5]"},
		{prefixes("10.0.0.0/16", "127.0.0.0/8"), "[10.0.0.5 10.0.1.5 127.0.0.1]"},
		{prefixes("10.0.0.0/24", "::/0"), "[10.0.0.5 ::]"},
		{prefixes("fe80::/10", "fd00::/8"), "[fd00::5]"},
		{prefixes("192.0.2.0/24"), "[]"},
	} {
		if got := fmt.Sprint(where(sdk.Node{NodePorts: test.ranges}, machine)); got != test.want {
			t.Errorf("%v: %s, want %s", test.ranges, got, test.want)
		}
	}
	if got := fmt.Sprint(where(sdk.Node{NodePorts: prefixes("0.0.0.0/0", "::/0")}, machine[:1])); got != "[0.0.0.0]" {
		t.Errorf("a machine without IPv6: %s", got)
	}
}
