// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// What is foreseen for a client is what it gets; to look changes nothing.
func TestForesee(t *testing.T) {
	const first, second = "10.0.0.1:80", "10.0.0.2:80"
	client := sdk.Caller{Addr: netip.MustParseAddr("198.18.0.7")}
	r := New()
	r.SetMark(0x2000)
	web := svc("web", "load-balancer 198.51.100.1:80", first+" "+second)
	web.Affinity = time.Minute
	s := NewService(web)
	target := &Target{s, web.Frontends[0]}
	both := []netip.AddrPort{addrPortOf(first), addrPortOf(second)}
	before := s.cursors[0].Load()
	f := r.Foresee(target, client)
	if f.Verdict != sdk.Forward || !slices.Equal(f.Endpoints, both) || f.Kept.IsValid() || f.Mark != 0x2000 || f.Attempts != len(dialTimeouts) || f.Full {
		t.Errorf("before it calls: %+v", f)
	}
	if s.cursors[0].Load() != before || len(s.affinity.entries) != 0 {
		t.Error("to look has changed what comes next")
	}
	got, _ := r.choose(target, client, nil)
	if f := r.Foresee(target, client); f.Kept != got {
		t.Errorf("it keeps %s, and %s is foreseen", got, f.Kept)
	}
	s.affinity.entries[client.Addr] = entry{got, time.Now().Add(-time.Second)}
	if f := r.Foresee(target, client); f.Kept.IsValid() {
		t.Errorf("its time is over, and %s is foreseen", f.Kept)
	}
	web.Frontends[0].Sources = []netip.Prefix{sourceRange("203.0.113.0/24")}
	if f := r.Foresee(&Target{s, web.Frontends[0]}, client); f.Verdict != sdk.Drop {
		t.Errorf("it is not let in: %+v", f)
	}
	s.Set(udp(svc("web", "cluster-ip 172.30.0.41:53", "")))
	r.counters.flows.Store(maxFlows)
	if f := r.Foresee(target, client); f.Verdict != sdk.Reject || len(f.Endpoints) != 0 {
		t.Errorf("without endpoints: %+v", f)
	}
	dns := udp(svc("dns", "cluster-ip 172.30.0.10:53", first))
	if f := r.Foresee(&Target{NewService(dns), dns.Frontends[0]}, client); !f.Full || f.Attempts != attemptsUDP {
		t.Errorf("UDP with as many flows as there may be: %+v", f)
	}
}

// Which clients a port of the shared listeners is for, and what is there for an address.
func TestDoor(t *testing.T) {
	x := New().NewRedirected()
	t.Cleanup(x.Close)
	web := svc("web", "cluster-ip 172.30.0.41:80", "10.0.0.1:80")
	if x.Target(web.Frontends[0].Addr) != nil {
		t.Error("there is a target before there is a socket")
	}
	s, err := x.ListenTCP(t.Context(), web.Frontends[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	target := &Target{NewService(web), web.Frontends[0]}
	s.Serve(target)
	for from, port := range x.Ports(sdk.IPv4) {
		if got, is := x.Door(sdk.IPv4, port); !is || got != sdk.Origin(from) {
			t.Errorf("port %d is for %s, %v", port, got, is)
		}
	}
	if _, is := x.Door(sdk.IPv4, 1); is {
		t.Error("another port is one")
	}
	if _, is := x.Door(sdk.IPv6, 0); is {
		t.Error("a listener that is not open is one")
	}
	if x.Target(web.Frontends[0].Addr) != target || x.Target(addrPortOf("172.30.0.42:80")) != nil {
		t.Error("it is for another Service")
	}
}
