// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// TestKernelManyAffinityServices checks that a thousand Services with affinity can be written, listed and adopted. The
// thousandth creates no set and no chain, and as many elements in as many batches as the second. The test logs the cost
// of one change among few and among many.
func TestKernelManyAffinityServices(t *testing.T) {
	onKernel(t, func(k kernel) {
		all := several(1001, 3)
		p := k.start()
		k.sync(p, sdk.Update{Full: true, To: 1, Node: &sdk.Node{}})
		k.role(p, sdk.Active)
		var each []time.Duration
		var costs []string
		f := p.families[0]
		for i, s := range all {
			s.Affinity = time.Hour
			elements, batches := f.kernel.total(), f.kernel.commits.Load()
			began := time.Now()
			k.sync(p, sdk.Update{From: uint64(i + 1), To: uint64(i + 2), Set: []sdk.Service{s}})
			each = append(each, time.Since(began))
			costs = append(costs, fmt.Sprintf("%d elements in %d batches, with %d sets and %d chains",
				f.kernel.total()-elements, f.kernel.commits.Load()-batches, len(f.kernel.layout.sets), len(f.kernel.layout.chains)))
		}
		if costs[1] != costs[999] {
			k.Errorf("the second Service adds %s, and the thousandth %s", costs[1], costs[999])
		}
		median := func(some []time.Duration) time.Duration {
			some = slices.Sorted(slices.Values(some))
			return some[len(some)/2]
		}
		k.Logf("a Service with affinity: %s among 50, %s among 1000", median(each[:50]), median(each[950:]))
		k.checkListing()
		p.die()
		next := k.start()
		for i := range all {
			all[i].Affinity = time.Hour
		}
		k.sync(next, sdk.Update{Full: true, To: 1, Set: all, Node: &sdk.Node{}})
		if n := next.families[0].kernel.commits.Load(); n > 2 {
			k.Errorf("a new process wrote %d batches", n)
		}
	})
}
