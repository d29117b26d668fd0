// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// scale is the number of Services of the larger measurement: in a user-mode kernel it takes minutes.
const scale = 4000

// BenchmarkKernelOneEndpoint adds and removes one endpoint, first with few Services and then with ten times as many. It
// compares the medians, because some of the hundreds of changes coincide with a round of the monitor or with other work
// of the machine.
func BenchmarkKernelOneEndpoint(b *testing.B) {
	world(b)
	var small, large []time.Duration
	for b.Loop() {
		small = append(small, timeChanges(b, scale/10)...)
		large = append(large, timeChanges(b, scale)...)
	}
	b.ReportMetric(float64(median(large))/float64(median(small)), "x-ten-times(≤1.3)")
	b.ReportMetric(float64(median(large).Microseconds()), "µs/change")
	b.ReportMetric(float64(scale), "services")
}

const changes = 500

// timeChanges returns the duration of each of many changes of one endpoint among n Services.
func timeChanges(b *testing.B, n int) []time.Duration {
	b.Helper()
	p := newPlugin(b.TempDir(), thisMachine())
	if _, err := p.Configure(b.Context(), sdk.Setup{}); err != nil {
		b.Fatal(err)
	}
	if result, err := p.Sync(b.Context(), many(n).Update(1)); err != nil || len(result.Failed) > 0 {
		b.Fatal(err, len(result.Failed))
	}
	if err := p.SetRole(b.Context(), sdk.Active); err != nil {
		b.Fatal(err)
	}
	svc := many(n).Services[n/2]
	took := make([]time.Duration, changes)
	for i := range took {
		changed := svc
		if i%2 == 0 {
			changed.Cluster = append(slices.Clone(svc.Cluster), sdk.Endpoint{Addr: endpoint(n/2, 3)})
		}
		at := uint64(i) + 1
		began := time.Now()
		if _, err := p.Sync(b.Context(), sdk.Update{From: at, To: at + 1, Set: []sdk.Service{changed}}); err != nil {
			b.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	if _, err := p.Cleanup(b.Context(), sdk.Leftovers{}); err != nil {
		b.Fatal(err)
	}
	if err := p.Close(); err != nil {
		b.Fatal(err)
	}
	return took
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}
