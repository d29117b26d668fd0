// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// needMarks returns a scenario of n Services. Each needs a mark, because its clients on this node use other endpoints than
// the clients outside.
func needMarks(n int) sdktest.Scenario {
	s := many(n)
	for i := range s.Services {
		svc := &s.Services[i]
		svc.Frontends[1] = sdk.Frontend{Kind: sdk.LoadBalancer, Policy: sdk.Local, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), 80)}
		svc.Local = svc.Cluster[:1]
	}
	return s
}

// marks returns the marks that have a virtual server, with the number of its endpoints.
func (l *instance) marks() map[uint32]int {
	all := make(map[uint32]int)
	l.exclusively(func() {
		for at, v := range l.fake.services {
			if at.mark != 0 {
				all[at.mark] = len(v.dests)
			}
		}
	})
	return all
}

// No two Services have the same mark. When a Service is removed, the virtual server of its mark is removed, too.
func TestEachServiceHasItsOwnMark(t *testing.T) {
	s := needMarks(3)
	l := start(t, sdktest.Scenario{Node: s.Node})
	more := s.Services[0]
	more.Cluster = append(slices.Clone(more.Cluster), sdk.Endpoint{Addr: endpoint(0, 3)})
	l.sync(sdk.Update{Set: []sdk.Service{more}})
	l.sync(sdk.Update{Set: s.Services[1:]})
	sizes := slices.Sorted(maps.Values(l.marks()))
	if want := []int{2, 2, 3}; !slices.Equal(sizes, want) {
		t.Errorf("the virtual servers by mark have %v endpoints, want %v", sizes, want)
	}

	l.sync(sdk.Update{Delete: []sdk.Name{s.Services[1].Name}})
	if now := l.marks(); len(now) != 2 {
		t.Errorf("after a Service was deleted, these marks have a virtual server: %v", now)
	}
}

// A mark has the tag of the node and never contains the masquerade bit. When the node's masquerade bit changes, a
// Service whose mark no longer fits gets a new one.
func TestMarksFitTheNode(t *testing.T) {
	for bit := range uint8(32) {
		n := nodeConfig{family: sdk.IPv4}
		n.node.MasqueradeBit = bit
		var last uint32
		for range 1000 {
			mark := n.nextMark(&last)
			if tag := mark & tagMask; tag != tagOne && tag != tagOther || mark&n.masquerade() != 0 || !n.canKeep(mark) {
				t.Fatalf("with masquerade bit %d, a Service has mark %#x", bit, mark)
			}
		}
		last = tagMask - 1
		if mark := n.nextMark(&last); !n.canKeep(mark) || mark&^tagMask == 0 {
			t.Errorf("with masquerade bit %d, the counter wraps to mark %#x", bit, mark)
		}
	}
	s := needMarks(1)
	l := start(t, s)
	before := l.marks()
	s.Node.MasqueradeBit = 25 // this bit is in tagOne
	l.sync(sdk.Update{Node: &s.Node})
	for mark := range l.marks() {
		if _, had := before[mark]; had || mark&(1<<25) != 0 || len(before) != 1 {
			t.Errorf("the marks with a virtual server were %v, and one is now %#x", before, mark)
		}
	}
}
