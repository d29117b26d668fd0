// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"math"
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
		{one("pointsman_my_relay_Öpen"), "has an invalid name or invalid labels"},
		{one("pointsman_my_relay_x", "l", strings.Repeat("x", 65)), "has an invalid name or invalid labels"},
		{one("pointsman_my_relay_x", "l", "\xff"), "has an invalid name or invalid labels"},
		{one("pointsman_my_relay_x", "a", "", "b", "", "c", "", "d", ""), "has an invalid name or invalid labels"},
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

// TestHostsNames: a dataplane of any name cannot publish metrics of the host.
func TestHostsNames(t *testing.T) {
	served := 0
	for name := range scrape(t, busy(t)) {
		rest, ours := strings.CutPrefix(name, "pointsman_")
		if !ours || strings.HasPrefix(rest, "iptables_") {
			continue
		}
		served++
		word, _, _ := strings.Cut(rest, "_")
		if got := refusals(sdk.Report{Samples: []sdk.Sample{{Name: name}}}, word); word != rest && !strings.Contains(got, "the host's own") {
			t.Errorf("a dataplane called %s may publish %s: %q", word, name, got)
		}
	}
	if served < 20 {
		t.Errorf("the host has only %d metrics", served)
	}
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
	own := func(bounds ...float64) sdk.Histogram { return sdk.NewHistogram("pointsman_r_took", nil, bounds...) }
	for name, test := range map[string]struct {
		change func(*sdk.Histogram)
		want   string // part of the reason for the refusal; empty if it is published
	}{
		"kube-proxy's": {func(h *sdk.Histogram) { *h = forgetting() }, ""},
		"own":          {func(h *sdk.Histogram) {}, ""},
		"foreign":      {func(h *sdk.Histogram) { h.Name = "x" }, "neither"},
		"of one value": {func(h *sdk.Histogram) {
			h.Name, h.Labels = "kubeproxy_nftables_localhost_nodeport_listeners", map[string]string{"ip_family": "IPv4"}
		}, "where kube-proxy's is one value"},
		"other bounds":            {func(h *sdk.Histogram) { *h = forgetting(); h.Bounds[3]++ }, "other bounds"},
		"other labels":            {func(h *sdk.Histogram) { *h = forgetting(); h.Labels["table"] = "" }, "where kube-proxy's has"},
		"other family":            {func(h *sdk.Histogram) { *h = forgetting(); h.Labels["ip_family"] = "ipv6" }, "IPv4 or IPv6"},
		"label of buckets":        {func(h *sdk.Histogram) { h.Labels = map[string]string{"le": "1"} }, "is not a valid histogram"},
		"a count is missing":      {func(h *sdk.Histogram) { h.Counts = h.Counts[1:] }, "is not a valid histogram"},
		"descending bounds":       {func(h *sdk.Histogram) { *h = own(2, 1) }, "is not a valid histogram"},
		"equal bounds":            {func(h *sdk.Histogram) { *h = own(1, 1) }, "is not a valid histogram"},
		"infinite bound":          {func(h *sdk.Histogram) { *h = own(math.Inf(1)) }, "is not a valid histogram"},
		"a bound is not a number": {func(h *sdk.Histogram) { *h = own(math.NaN()) }, "is not a valid histogram"},
		"the sum is not a number": {func(h *sdk.Histogram) { h.Sum = math.NaN() }, "is not a valid histogram"},
		"many":                    {func(h *sdk.Histogram) { *h = own(ascend(300)...) }, "other series"},
	} {
		h := own(1, 2)
		test.change(&h)
		if got := refusals(sdk.Report{Histograms: []sdk.Histogram{h}}, "r"); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: refused for %q; want %q", name, got, test.want)
		}
	}
	for name, want := range map[string]string{
		"pointsman_r_took_count": "collides",
		"pointsman_r_took":       "should be",
		"kubeproxy_conntrack_reconciler_sync_duration_seconds": "where kube-proxy's is a histogram",
	} {
		r := sdk.Report{Histograms: []sdk.Histogram{own(1, 2)}, Samples: []sdk.Sample{{Name: name}}}
		if strings.HasPrefix(name, "kubeproxy") {
			r.Samples[0].Labels = map[string]string{"ip_family": "IPv4"}
		}
		if got := refusals(r, "r"); !strings.Contains(got, want) {
			t.Errorf("%s beside a histogram: refused for %q; want %q", name, got, want)
		}
	}
}

func ascend(n int) (list []float64) {
	for i := range n {
		list = append(list, float64(i))
	}
	return list
}
