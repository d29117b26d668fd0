// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"net/netip"
	"runtime"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
)

// Data about past changes is not kept: after all endpoints of all Services have changed several times, and after many
// Services were added and removed, the rule set takes about as much memory as before.
func TestChangesLeakNoMemory(t *testing.T) {
	node := sdk.Node{MasqueradeBit: 14}
	b := onFake(t, sdk.IPv4, node)
	b.Tool.Kernel = forgetful{}
	const n = 600
	follow := func(from, endpoint int) {
		pieces := make(map[sdk.Name]rules.Piece)
		for i := from; i < from+n; i++ {
			svc := service(i, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(base+uint32(i)), 80)})
			if pieces[svc.Name] = (rules.Piece{}); endpoint >= 0 {
				svc.Affinity, svc.Cluster = 1e9, endpoints(endpoint + 10)[endpoint:]
				pieces[svc.Name] = want(svc, node, false)
			}
		}
		b.write(t, pieces)
	}
	follow(0, 0)
	before := heapInUse()
	for round := range 8 {
		follow(0, 10*round)
		follow(n, 0)
		follow(n, -1)
	}
	after := heapInUse()
	runtime.KeepAlive(b)
	if t.Logf("%.1f MB before, %.1f MB after", before, after); after > 1.3*before {
		t.Errorf("the rule set takes %.1f MB before the changes and %.1f MB after them", before, after)
	}
}

// A forgetful kernel accepts every write and stores nothing.
type forgetful struct{}

func (forgetful) Save(context.Context, ...string) (iptables.Tables, error) { return nil, nil }

func (forgetful) Restore(context.Context, *iptables.Script) error { return nil }

// heapInUse returns the used heap memory in MB.
func heapInUse() float64 {
	runtime.GC()
	runtime.GC() // the second run frees what finalizers kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}
