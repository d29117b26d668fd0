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

// Data about past changes is not kept: after all endpoints of all Services have changed several times, after many
// Services were added and removed, and after a Service with very many endpoints was removed, the rule set takes about
// as much memory as before.
func TestChangesLeakNoMemory(t *testing.T) {
	node := sdk.Node{MasqueradeBit: 14}
	b := onFake(t, sdk.IPv4, node)
	b.Tool.Kernel = forgetful{}
	follow := func(pieces map[sdk.Name]rules.Piece) { b.write(t, pieces) }
	const n = 600
	services := func(from int, first byte) map[sdk.Name]rules.Piece {
		pieces := make(map[sdk.Name]rules.Piece)
		for i := from; i < from+n; i++ {
			svc := service(i, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(base+uint32(i)), 80)})
			svc.Cluster = nil
			for e := range 10 {
				addr := netip.AddrFrom4([4]byte{first, byte(e), byte(i >> 8), byte(i)})
				svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(addr, 8080), OnNode: true})
			}
			pieces[svc.Name] = want(svc, node, false)
		}
		return pieces
	}
	gone := func(pieces map[sdk.Name]rules.Piece) map[sdk.Name]rules.Piece {
		for name := range pieces {
			pieces[name] = rules.Piece{}
		}
		return pieces
	}
	follow(services(0, 20))
	before := heapInUse()
	for round := range 8 {
		follow(services(0, byte(21+round)))
		follow(services(n, 20))
		follow(gone(services(n, 20)))
	}
	huge := large(endpoints(5000))
	follow(map[sdk.Name]rules.Piece{huge.Name: want(huge, node, false)})
	follow(map[sdk.Name]rules.Piece{huge.Name: {}})
	after := heapInUse()
	runtime.KeepAlive(b)
	t.Logf("%.1f MB before, %.1f MB after", before, after)
	if after > 1.3*before {
		t.Errorf("the rule set takes %.1f MB before the changes and %.1f MB after them", before, after)
	}
	if left := b.write(t, nil); left != nil || len(b.Desired()) != n {
		t.Errorf("%d Services are desired, and still to write is %.1000s", len(b.Desired()), left)
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
