// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/field"
)

// No connection fails while endpoints are added and removed, also across powers of two, nor while another program
// flushes the rule set, if the table has an owner.
func TestKernelNoConnectionFails(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, sticking)
		s.Services[0].Affinity = 0
		for i := range byte(7) {
			ep := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 180, 1, 10 + i}), 8080)
			s.Services[0].Cluster = append(s.Services[0].Cluster, sdk.Endpoint{Addr: ep})
		}
		s.Services[0].Normalize()
		p, stage := k.active(g, s)
		base := s.Services[0]
		packet := s.Packets[0]
		ctx, cancel := context.WithCancel(k.Context())
		var calls, failed atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil && calls.Load() < 6000 { // at most as many as one client has ports
					a, err := stage.Send(ctx, packet)
					if ctx.Err() != nil {
						return
					}
					if calls.Add(1); err != nil || a.Verdict != sdk.Forward {
						failed.Add(1)
						k.Logf("call %d: %s, %v", calls.Load(), a, err)
					}
				}
			})
		}
		began, revision := time.Now(), uint64(1)
		for n := 0; time.Since(began) < 5*time.Second && calls.Load() < 6000; n++ {
			svc := base
			from := n % 7
			svc.Cluster = base.Cluster[from : from+1+(n/7)%(len(base.Cluster)-from)]
			k.sync(p, sdk.Update{From: revision, To: revision + 1, Set: []sdk.Service{svc}})
			revision++
			if k.protect == "auto" && n%50 == 0 {
				k.flush()
			}
		}
		cancel()
		all.Wait()
		k.Logf("%d calls during %d changes: %d failed", calls.Load(), revision-1, failed.Load())
		if failed.Load() > 0 || calls.Load() < 20 {
			k.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
		}
	})
}
