// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// What was planned while another process was the writer is written when that one is gone,
// without another Sync. A Service that the kernel does not take then keeps what served it,
// and is named by the report until an update names it.
func TestNamesWhatFailedBetweenCalls(t *testing.T) {
	first := newLife(t)
	s := many(3)
	if err := first.full(s); err != nil {
		t.Fatal(err)
	}
	first.role(sdk.Active)

	second := &life{T: t, fake: first.fake, dir: first.dir}
	second.begin()
	t.Cleanup(second.end)
	wants := s.Update(1)
	wants.Set[1].Hints = map[string]string{schedulerHint: "mh"}
	added := netip.MustParseAddrPort("10.180.9.9:8080")
	wants.Set[2].Cluster = append(wants.Set[2].Cluster[:len(wants.Set[2].Cluster):len(wants.Set[2].Cluster)], sdk.Endpoint{Addr: added})
	result, err := second.plugin.Sync(t.Context(), wants)
	if err != nil || !result.Planned || len(result.Failed) > 0 {
		t.Fatalf("beside the writer: %+v, %v", result, err)
	}
	if r := second.plugin.Report(); r.Lock != sdk.LockAwaited || r.Served != 0 {
		t.Errorf("beside the writer it reports %+v", r)
	}
	first.fake.refuse = func(r string) error {
		if strings.HasPrefix(r, "server ") && strings.HasSuffix(r, " mh") {
			return syscall.ENOENT
		}
		return nil
	}
	first.end()
	eventually.True(t, "it writes", func() bool { return second.plugin.Report().Served == 1 })
	r := second.plugin.Report()
	if r.Lock != sdk.LockHeld || len(r.Unserved) != 1 || r.Unserved[0].Name != s.Services[1].Name {
		t.Errorf("once it is the writer it reports %+v", r)
	}
	second.revision = 1
	second.wants(s.Services[1], "rr", 2)
	second.wants(s.Services[2], "rr", 3)

	second.quiet(func() { first.fake.refuse = nil })
	second.sync(sdk.Update{Set: wants.Set[1:2]})
	second.wants(s.Services[1], "mh", 2)
	if r := second.plugin.Report(); r.Served != 2 || len(r.Unserved) > 0 {
		t.Errorf("after another update it reports %+v", r)
	}
}

// quiet does something while nothing asks the kernel.
func (l *life) quiet(f func()) {
	l.Helper()
	if err := l.plugin.Do(l.Context(), func(map[sdk.Name]sdk.Service) error { f(); return nil }); err != nil {
		l.Fatal(err)
	}
}

// wants holds the virtual service of a Service to its scheduler, and how many it serves by.
func (l *life) wants(svc sdk.Service, scheduler string, dests int) {
	l.Helper()
	l.quiet(func() {
		at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: svc.Frontends[0].Addr}
		v := l.fake.services[at]
		if v == nil || v.scheduling.scheduler != scheduler || len(v.serving()) != dests {
			l.Errorf("%s is %+v; want scheduler %s and %d endpoints", at, v, scheduler, dests)
		}
	})
}
