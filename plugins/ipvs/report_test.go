// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// Report returns the number of objects under the names of the metrics.
func TestReportsObjectCounts(t *testing.T) {
	l := start(t, many(3))
	l.sync(sdk.Update{Delete: []sdk.Name{many(1).Services[0].Name}})
	got := make(map[string]float64)
	for _, s := range l.plugin.Report().Samples {
		got[s.Name+" "+s.Labels["ip_family"]] = s.Value
	}
	if got["pointsman_ipvs_virtual_servers IPv4"] != 4 || got["pointsman_ipvs_addresses IPv4"] != 2 || got["pointsman_ipvs_addresses IPv6"] != 0 {
		t.Errorf("Report returned %v", got)
	}
}

// Report returns the duration of searches for stale UDP flows by family. Only a change of a UDP Service starts a
// search.
func TestReportsSearchesForStaleFlows(t *testing.T) {
	s := many(2)
	s.Services[0].Name.Protocol = sdk.UDP
	l := start(t, s)
	rounds := func() (n uint64) {
		for _, h := range l.plugin.Report().Histograms {
			if h.Name == "kubeproxy_conntrack_reconciler_sync_duration_seconds" && h.Labels["ip_family"] == "IPv4" {
				for _, count := range h.Counts {
					n += count
				}
			}
		}
		return n
	}
	for i, want := range []uint64{1, 0} {
		svc := s.Services[i]
		svc.Cluster = svc.Cluster[:1]
		before := rounds()
		l.sync(sdk.Update{Set: []sdk.Service{svc}})
		if after := rounds(); after != before+want {
			t.Errorf("a change of %v started %d searches, want %d", svc.Name, after-before, want)
		}
	}
}
