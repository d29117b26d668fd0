// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

var own = netip.MustParseAddr("192.0.2.10") // the node's address

// dice create random scenarios.
type dice struct{ *rand.Rand }

func (d dice) one(in int) bool { return d.IntN(in) == 0 }

// in returns one of the first n addresses of a range.
func (d dice) in(prefix string, n int) netip.Addr {
	return netip.MustParseAddr(prefix + fmt.Sprint(1+d.IntN(n)))
}

func (d dice) node() sdk.Node {
	n := sdk.Node{Addrs: []netip.Addr{own}, MasqueradeAll: d.one(6)}
	if !d.one(4) {
		n.Pods.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.180.0.0/24")}
	}
	if !d.one(6) {
		n.NodePorts = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	}
	if d.one(2) {
		n.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("172.30.0.0/24")}
	}
	return n
}

// service returns random Service i. No two of them have the same port.
func (d dice) service(i int) sdk.Service {
	svc := sdk.Service{Name: sdk.Name{Namespace: "ns", Service: fmt.Sprint("s", i), Protocol: []sdk.Protocol{sdk.TCP, sdk.UDP}[d.IntN(2)], Family: sdk.IPv4}}
	for range d.IntN(5) {
		at, port := d.in("10.180.1.", 3), uint16(8000+i)
		here := !d.one(3)
		if here {
			at = []netip.Addr{d.in("10.180.0.", 3), own}[d.IntN(4)/3]
		}
		ep := sdk.Endpoint{Addr: netip.AddrPortFrom(at, port), OnNode: here}
		if svc.Cluster = append(svc.Cluster, ep); here {
			svc.Local = append(svc.Local, ep)
		}
	}
	svc.Affinity = time.Duration(d.IntN(4)/3) * time.Hour
	add := func(kind sdk.Kind, at netip.Addr, port int) {
		f := sdk.Frontend{Kind: kind, Addr: netip.AddrPortFrom(at, uint16(port)), Policy: []sdk.Policy{sdk.Cluster, sdk.Local}[d.IntN(3)/2]}
		if kind != sdk.ClusterIP && d.one(3) {
			f.Sources = []netip.Prefix{netip.MustParsePrefix("10.180.0.0/24"), netip.MustParsePrefix("198.18.0.0/24")}[d.IntN(2):]
		}
		svc.Frontends = append(svc.Frontends, f)
	}
	add(sdk.ClusterIP, []netip.Addr{netip.AddrFrom4([4]byte{172, 30, 0, byte(1 + i)}), own}[d.IntN(6)/5], 80+i)
	if d.one(2) {
		add(sdk.NodePort, netip.IPv4Unspecified(), 30000+i)
	}
	if d.one(2) {
		add(sdk.ExternalIP, d.in("198.51.100.", 9), 80+i)
	}
	if d.one(2) {
		add(sdk.LoadBalancer, d.in("203.0.113.", 9), 80+i)
	}
	svc.Normalize()
	return svc
}

// packet returns a random packet from any kind of client to a Service or near one.
func (d dice) packet(s sdktest.Scenario) (p sdktest.Packet) {
	callers := []netip.Addr{d.in("10.180.0.", 4), d.in("10.180.1.", 4), d.in("198.18.0.", 1), d.in("192.0.2.", 1), own}
	p.From.Addr = callers[d.IntN(len(callers))]
	if p.From.Addr == own {
		p.From.From = sdk.OnNode
	} else if s.Node.Pods.Contains(p.From.Addr, "") {
		p.From.From = sdk.OnPod
	}
	svc := s.Services[d.IntN(len(s.Services))]
	p.To, p.Protocol = svc.Frontends[d.IntN(len(svc.Frontends))].Addr, svc.Name.Protocol
	if p.To.Addr().IsUnspecified() {
		p.To = netip.AddrPortFrom(own, p.To.Port())
	}
	switch {
	case d.one(12):
		p.To = netip.AddrPortFrom(p.To.Addr(), 999)
	case d.one(20):
		p.To = netip.MustParseAddrPort("172.30.0.99:80")
	}
	p.Want = sdktest.Where(slices.Values(s.Services), s.Node, p.From, p.To, p.Protocol)
	return p
}

// TestRandomTraced checks that packets between random clients and random Services take the path of the contract
// through the table that would be written.
func TestRandomTraced(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(1, 2))}
	for round := range 300 {
		s := sdktest.Scenario{Node: d.node()}
		for i := range 8 {
			s.Services = append(s.Services, d.service(i))
		}
		model := modelOf(t, sdk.IPv4, s)
		for range 20 {
			p := d.packet(s)
			want := answered(s, p)
			paths, err := trace(model, rulestest.Packet(p, s.Node.Addrs))
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(paths, func(w oracle.Path) bool { return w.To.Addr() == p.From.Addr }) {
				continue // a client that is its own endpoint: TestElements has its entry of hairpin
			}
			found := rulestest.Outcome(t, paths, want)
			if slices.ContainsFunc(want.Endpoints, func(ep netip.AddrPort) bool { return ep.Addr() == own }) { // what goes to the node itself needs no masquerading
				found.Masquerade, found.Hairpin, want.Masquerade, want.Hairpin = false, nil, false, nil
			}
			if !found.Equal(want) {
				t.Errorf("round %d: %s %s > %s: got %s, want %s; node %+v, services %+v", round, p.Protocol, p.From.Addr, p.To, found, want, s.Node, s.Services)
			}
		}
	}
}
