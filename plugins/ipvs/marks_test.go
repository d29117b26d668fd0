// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
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

// A Service keeps its mark when another process becomes the writer and renders all Services again.
func TestServicesKeepTheirMarks(t *testing.T) {
	l := newInstance(t)
	s := needMarks(5)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	before := l.marks()

	second := &instance{T: t, fake: l.fake, dir: l.dir}
	second.begin()
	t.Cleanup(second.end)
	if _, err := second.plugin.Sync(t.Context(), s.Update(1)); !errors.As(err, new(*sdk.Busy)) {
		t.Fatalf("Sync while another process is the writer: %v", err)
	}
	l.fake.counted()
	l.end()
	if _, err := second.plugin.Sync(t.Context(), s.Update(1)); err != nil {
		t.Fatal(err)
	}
	if after := second.marks(); len(before) != 5 || !maps.Equal(after, before) {
		t.Errorf("the marks with a virtual server were %v and are %v", before, after)
	}
	if wrote := l.fake.counted(); slices.ContainsFunc(wrote, func(r string) bool { return strings.Contains(r, "mark") }) {
		t.Errorf("an unchanged state caused the requests %q", wrote)
	}
}

// No two Services have the same mark. When a Service is removed, the virtual server of its mark is removed, too.
func TestEachServiceHasItsOwnMark(t *testing.T) {
	l := newInstance(t)
	s := needMarks(3)
	if err := l.full(sdktest.Scenario{Node: s.Node}); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	l.sync(sdk.Update{Set: []sdk.Service{withEndpoints(s.Services[0], 11, 101)}})
	l.sync(sdk.Update{Set: s.Services[1:]})
	sizes := slices.Sorted(maps.Values(l.marks()))
	if want := []int{2, 2, 101}; !slices.Equal(sizes, want) {
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
	l := newInstance(t)
	s := needMarks(1)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	before := l.marks()
	s.Node.MasqueradeBit = 25 // this bit is in tagOne
	l.sync(sdk.Update{Node: &s.Node})
	for mark := range l.marks() {
		if _, had := before[mark]; had || mark&(1<<25) != 0 || len(before) != 1 {
			t.Errorf("the marks with a virtual server were %v, and one is now %#x", before, mark)
		}
	}
}
