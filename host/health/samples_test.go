// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestFilter checks single samples.
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
		want   string // part of the reason for the refusal; empty if it is published
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
		{one("pointsman_my_relay_\xff"), "not a valid metric name"},
		{one("pointsman_my_relay_x", "l", strings.Repeat("x", 101)), "is too large"},
		{one("pointsman_my_relay_x", "l", "\xff"), "not valid UTF-8"},
		{one("pointsman_my_relay_x", "le", "1"), "no label le"},
		{one("pointsman_my_relay_x", "a", "", "b", "", "c", "", "d", ""), "is too large"},
	} {
		if got := refusals(sdk.Report{Samples: []sdk.Sample{test.sample}}, "my-relay"); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%v: refused for %q; want %q", test.sample, got, test.want)
		}
	}
	text := refusals(sdk.Report{Samples: []sdk.Sample{one("pointsman_r_x", "a", "1"), one("pointsman_r_x", "a", "1"), one("pointsman_r_x", "b", "1")}}, "r")
	if strings.Count(text, "\n") != 0 || !strings.Contains(text, "was collected before with the same name and label values") {
		t.Errorf("one series twice: %s", text)
	}
	var many sdk.Report
	for i := range 1000 {
		many.Samples = append(many.Samples, one("pointsman_r_x", "service", fmt.Sprint(i)))
	}
	if n := strings.Count(refusals(many, "r"), "\n") + 1; n != 1000-maxSeries {
		t.Errorf("of a thousand series %d are published", 1000-n)
	}
}

// refusals returns the reasons why metrics of a dataplane are not published, a line each.
func refusals(r sdk.Report, name string) string {
	_, refused := publish(Dataplane{Name: name, Report: r})
	return strings.Join(refused, "\n")
}

// TestHelp: the first help text of a dataplane's own metric is used for all its series; those of
// kube-proxy's metrics do not change.
func TestHelp(t *testing.T) {
	b := newHarness()
	b.setDataplane(func(p *Dataplane) {
		p.Name = "acme"
		p.Report.Samples = []sdk.Sample{
			{Name: "pointsman_acme_open", Help: "Doors that are open.", Labels: map[string]string{"at": "1"}},
			{Name: "pointsman_acme_open", Help: "Others.", Labels: map[string]string{"at": "2"}},
			{Name: "pointsman_acme_doors_shut"},
			{Name: "kubeproxy_nftables_localhost_nodeport_listeners", Help: "Doors.", Labels: map[string]string{"ip_family": "IPv4"}},
		}
	})
	all := scrape(t, b) // fails of two texts for one metric
	for name, want := range map[string]string{
		"pointsman_acme_open":                             "Doors that are open.",
		"pointsman_acme_doors_shut":                       "Of the acme dataplane: doors shut.",
		"kubeproxy_nftables_localhost_nodeport_listeners": "Listeners for node ports on loopback addresses.",
	} {
		if got := all[name].GetHelp(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestFilterHistogram checks single histograms.
func TestFilterHistogram(t *testing.T) {
	own := func(bounds int) sdk.Histogram {
		h := sdk.NewHistogram("pointsman_r_took", nil)
		h.Counts = make([]uint64, bounds+1)
		for i := range bounds {
			h.Bounds = append(h.Bounds, float64(i))
		}
		return h
	}
	for name, test := range map[string]struct {
		change func(*sdk.Histogram)
		want   string // part of the reason for the refusal; empty if it is published
	}{
		"kube-proxy's":       {func(h *sdk.Histogram) { *h = forgetting() }, ""},
		"own":                {func(h *sdk.Histogram) {}, ""},
		"foreign":            {func(h *sdk.Histogram) { h.Name = "x" }, "neither"},
		"other labels":       {func(h *sdk.Histogram) { *h = forgetting(); h.Labels["table"] = "" }, "where kube-proxy's has"},
		"label of buckets":   {func(h *sdk.Histogram) { h.Labels = map[string]string{"le": "1"} }, "is invalid"},
		"a count is missing": {func(h *sdk.Histogram) { h.Counts = h.Counts[1:] }, "is invalid"},
		"many":               {func(h *sdk.Histogram) { *h = own(300) }, "other series"},
	} {
		h := own(2)
		test.change(&h)
		if got := refusals(sdk.Report{Histograms: []sdk.Histogram{h}}, "r"); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: refused for %q; want %q", name, got, test.want)
		}
	}
	for name, want := range map[string]string{"pointsman_r_took_count": "collides", "pointsman_r_took": "should be"} {
		r := sdk.Report{Histograms: []sdk.Histogram{own(2)}, Samples: []sdk.Sample{{Name: name}}}
		if got := refusals(r, "r"); !strings.Contains(got, want) {
			t.Errorf("%s beside a histogram: refused for %q; want %q", name, got, want)
		}
	}
}
