// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// TestRounds: the metrics have kube-proxy's names, and a later count does not change an earlier report.
func TestRounds(t *testing.T) {
	r := newRounds(sdk.IPv6)
	r.count(3*time.Millisecond, 2)
	r.count(time.Minute, 0)
	var report sdk.Report
	r.tell(&report)
	r.count(0, 5)

	h, s := report.Histograms[0], report.Samples[0]
	if h.Name != "kubeproxy_conntrack_reconciler_sync_duration_seconds" || h.Labels["ip_family"] != "IPv6" {
		t.Errorf("the histogram is %s %v", h.Name, h.Labels)
	}
	if n := len(h.Bounds); n != 15 || h.Bounds[0] != 0.001 || h.Bounds[14] != 16.384 {
		t.Errorf("its bounds are %v", h.Bounds)
	}
	if h.Counts[0] != 0 || h.Counts[2] != 1 || h.Counts[15] != 1 || h.Sum != 60.003 {
		t.Errorf("it counted %v of sum %g", h.Counts, h.Sum)
	}
	if s.Name != "kubeproxy_conntrack_reconciler_deleted_entries_total" || s.Labels["ip_family"] != "IPv6" || s.Value != 2 {
		t.Errorf("the sample is %+v", s)
	}
}
