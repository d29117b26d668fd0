// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

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

// TestHelp has a metric of a dataplane's own described as the dataplane does, in one text for
// all its series; kube-proxy's stay as they are.
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

// TestFilterHistogram decides on histograms one by one.
func TestFilterHistogram(t *testing.T) {
	own := func(bounds ...float64) sdk.Histogram { return sdk.NewHistogram("pointsman_r_took", nil, bounds...) }
	for name, test := range map[string]struct {
		change func(*sdk.Histogram)
		want   string // in why it is refused; empty: it is not
	}{
		"kube-proxy's": {func(h *sdk.Histogram) { *h = forgetting() }, ""},
		"own":          {func(h *sdk.Histogram) {}, ""},
		"foreign":      {func(h *sdk.Histogram) { h.Name = "x" }, "neither"},
		"of one value": {func(h *sdk.Histogram) {
			h.Name, h.Labels = "kubeproxy_nftables_localhost_nodeport_listeners", map[string]string{"ip_family": "IPv4"}
		}, "where kube-proxy's is one value"},
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
