// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// marked is a scenario of n Services, each of which needs a mark: callers on this node use
// other endpoints than those from elsewhere.
func marked(n int) sdktest.Scenario {
	s := many(n)
	for i := range s.Services {
		svc := &s.Services[i]
		svc.Frontends[1] = sdk.Frontend{Kind: sdk.LoadBalancer, Policy: sdk.Local, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), 80)}
		svc.Local = svc.Cluster[:1]
	}
	return s
}

// marks are the marks that the kernel has virtual services of, and how many endpoints each has.
func (l *life) marks() map[uint32]int {
	all := make(map[uint32]int)
	l.quiet(func() {
		for at, v := range l.fake.services {
			if at.mark != 0 {
				all[at.mark] = len(v.dests)
			}
		}
	})
	return all
}

// A Service keeps its mark when another process becomes the writer, and renders all Services again.
func TestServicesKeepTheirMarks(t *testing.T) {
	l := newLife(t)
	s := marked(5)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	before := l.marks()

	second := &life{T: t, fake: l.fake, dir: l.dir}
	second.begin()
	t.Cleanup(second.end)
	if _, err := second.plugin.Sync(t.Context(), s.Update(1)); !errors.As(err, new(*sdk.Busy)) {
		t.Fatalf("beside the writer: %v", err)
	}
	l.fake.counted()
	l.end()
	if _, err := second.plugin.Sync(t.Context(), s.Update(1)); err != nil {
		t.Fatal(err)
	}
	if after := second.marks(); len(before) != 5 || !maps.Equal(after, before) {
		t.Errorf("there were servers of the marks %v, and are of %v", before, after)
	}
	if wrote := l.fake.counted(); slices.ContainsFunc(wrote, func(r string) bool { return strings.Contains(r, "mark") }) {
		t.Errorf("with nothing to change it wrote %q", wrote)
	}
}

// Each Service has a mark for itself; one that is gone leaves its mark to others.
func TestAMarkIsOfOneService(t *testing.T) {
	l := newLife(t)
	s := marked(3)
	if err := l.full(sdktest.Scenario{Node: s.Node}); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	l.sync(sdk.Update{Set: []sdk.Service{widened(s.Services[0], 11, 101)}})
	l.sync(sdk.Update{Set: s.Services[1:]})
	sizes := slices.Sorted(maps.Values(l.marks()))
	if want := []int{2, 2, 101}; !slices.Equal(sizes, want) {
		t.Errorf("the servers of marks have %v endpoints, want %v", sizes, want)
	}

	l.sync(sdk.Update{Delete: []sdk.Name{s.Services[1].Name}})
	l.quiet(func() {
		marks := l.plugin.session.families[0].objects.marks
		if len(marks.of) != 2 || len(marks.owner) != 2 || len(marks.unneeded) != 0 {
			t.Errorf("after a Service has gone there are %+v", marks)
		}
	})
}

// A mark is not free before the kernel has what it should: another Service must not get it
// while its virtual service still has the endpoints of the one before.
func TestAMarkIsFreeOnceItsServerHasGone(t *testing.T) {
	m, n := newMarks(), nodeConfig{family: sdk.IPv4}
	name := func(i int) sdk.Name { return sdk.Name{Service: fmt.Sprint(i)} }
	first := m.take(name(1), n)
	m.leave(name(1))
	m.next = 0
	if m.take(name(2), n) == first {
		t.Error("a mark was taken that was to be left")
	}
	if m.take(name(1), n) != first {
		t.Error("a Service that is back has another mark")
	}
	m.settle(map[sdk.Name]desired{name(1): {mark: first}})
	if m.of[name(1)] != first {
		t.Error("a Service that is back lost its mark")
	}
	m.leave(name(1))
	m.settle(nil)
	m.next = 0
	if m.take(name(3), n) != first {
		t.Error("a mark that nothing has was not given out again")
	}
}
