// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"maps"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// Rounds count what looking through the flows of one family came to, under the
// names and with the bounds that kube-proxy gave them.
type Rounds struct {
	mu     sync.Mutex // guards what follows
	forgot int
	took   sdk.Histogram // seconds
}

// NewRounds returns those of family; there was none so far.
func NewRounds(family sdk.Family) *Rounds {
	return &Rounds{took: sdk.NewHistogram("kubeproxy_conntrack_reconciler_sync_duration_seconds",
		map[string]string{"ip_family": familyName(family)}, bounds()...)}
}

// familyName returns how kube-proxy's metrics call it.
func familyName(f sdk.Family) string {
	if f == sdk.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// bounds go from a millisecond to a quarter of a minute.
func bounds() []float64 {
	list := make([]float64, 15)
	for i := range list {
		list[i] = 0.001 * float64(int(1)<<i)
	}
	return list
}

// Count notes a round that took so long and forgot so many flows.
func (r *Rounds) Count(took time.Duration, forgot int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgot += forgot
	r.took.Observe(took.Seconds())
}

// Tell adds what was counted to a report.
func (r *Rounds) Tell(report *sdk.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	report.Histograms = append(report.Histograms, r.took.Clone())
	report.Samples = append(report.Samples, sdk.Sample{
		Name: "kubeproxy_conntrack_reconciler_deleted_entries_total", Labels: maps.Clone(r.took.Labels), Value: float64(r.forgot),
	})
}
