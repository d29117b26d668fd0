// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"maps"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// Rounds counts searches for stale flows of one family, in metrics with kube-proxy's names and
// buckets.
type Rounds struct {
	mu     sync.Mutex // guards the fields below
	forgot int
	took   sdk.Histogram // seconds
}

// NewRounds returns the Rounds of family, with all counts zero.
func NewRounds(family sdk.Family) *Rounds {
	return &Rounds{took: sdk.NewHistogram("kubeproxy_conntrack_reconciler_sync_duration_seconds",
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

// Count adds a search that took so long and deleted forgot flows.
func (r *Rounds) Count(took time.Duration, forgot int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgot += forgot
	r.took.Observe(took.Seconds())
}

// Tell adds the metrics to a report.
func (r *Rounds) Tell(report *sdk.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	report.Histograms = append(report.Histograms, r.took.Clone())
	report.Samples = append(report.Samples, sdk.Sample{
		Name: "kubeproxy_conntrack_reconciler_deleted_entries_total", Labels: maps.Clone(r.took.Labels), Value: float64(r.forgot),
	})
}
