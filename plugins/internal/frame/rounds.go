// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"maps"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A rounds counts searches for stale flows of one family, in metrics with kube-proxy's names and
// buckets.
type rounds struct {
	mu     sync.Mutex // guards the fields below
	forgot int
	took   sdk.Histogram // seconds
}

// newRounds returns the rounds of family, with all counts zero.
func newRounds(family sdk.Family) *rounds {
	return &rounds{took: sdk.NewHistogram("kubeproxy_conntrack_reconciler_sync_duration_seconds",
		map[string]string{"ip_family": familyName(family)}, bounds()...)}
}

// familyName returns the label value of a family in kube-proxy's metrics.
func familyName(f sdk.Family) string {
	if f == sdk.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// bounds returns buckets from a millisecond to 16 seconds.
func bounds() []float64 {
	list := make([]float64, 15)
	for i := range list {
		list[i] = 0.001 * float64(int(1)<<i)
	}
	return list
}

// count adds a search that took so long and deleted forgot flows.
func (r *rounds) count(took time.Duration, forgot int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgot += forgot
	r.took.Observe(took.Seconds())
}

// tell adds the metrics to a report.
func (r *rounds) tell(report *sdk.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	report.Histograms = append(report.Histograms, r.took.Clone())
	report.Samples = append(report.Samples, sdk.Sample{
		Name: "kubeproxy_conntrack_reconciler_deleted_entries_total", Labels: maps.Clone(r.took.Labels), Value: float64(r.forgot),
	})
}
