// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// A network has the ranges of one family from which random scenarios take addresses.
type network struct{ here, elsewhere, clients, neighbours, clusterIPs, external, own netip.Prefix }

var networks = map[sdk.Family]network{
	sdk.IPv4: networkOf("10.180.0.0/24", "10.180.1.0/24", "198.18.0.0/24", "192.0.2.0/24", "172.30.0.0/24", "198.51.100.0/24", "192.0.2.10/32"),
	sdk.IPv6: networkOf("fd00:10:180::/64", "fd00:10:180:1::/64", "fd00:18::/64", "2001:db8::/64", "fd00:30::/64", "2001:db8:51::/64", "2001:db8::10/128"),
}

func networkOf(s ...string) network {
	p := func(i int) netip.Prefix { return netip.MustParsePrefix(s[i]) }
	return network{p(0), p(1), p(2), p(3), p(4), p(5), p(6)}
}

// in returns address n of a range.
func in(p netip.Prefix, n int) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-1] += byte(n)
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

// dice create random scenarios of one family.
type dice struct {
	*rand.Rand
	network
	family sdk.Family
}

func (d dice) one(in int) bool { return d.IntN(in) == 0 }

func (d dice) node() sdk.Node {
	n := sdk.Node{Addrs: []netip.Addr{d.own.Addr()}, MasqueradeAll: d.one(6)}
	if !d.one(4) {
		n.Pods.CIDRs = []netip.Prefix{d.here}
	}
	if !d.one(6) {
		n.NodePorts = []netip.Prefix{netip.PrefixFrom(d.own.Addr(), 0).Masked()}
	}
	if d.one(2) {
		n.ServiceCIDRs = []netip.Prefix{d.clusterIPs}
	}
	return n
}

// service returns random Service i. No two of them have the same port.
func (d dice) service(i int) sdk.Service {
	protocol := []sdk.Protocol{sdk.TCP, sdk.TCP, sdk.UDP}[d.IntN(3)]
	svc := sdk.Service{Name: sdk.Name{Namespace: "ns", Service: fmt.Sprint("s", i), Protocol: protocol, Family: d.family}}
	for range d.IntN(5) {
		ep := sdk.Endpoint{Addr: netip.AddrPortFrom(in(d.elsewhere, 1+d.IntN(3)), uint16(8000+i))}
		if d.one(2) {
			ep = sdk.Endpoint{Addr: netip.AddrPortFrom(in(d.here, 1+d.IntN(3)), uint16(8000+i)), OnNode: true}
		} else if d.one(5) {
			ep = sdk.Endpoint{Addr: netip.AddrPortFrom(d.own.Addr(), uint16(8000+i)), OnNode: true}
		}
		svc.Cluster = append(svc.Cluster, ep)
		if ep.OnNode {
			svc.Local = append(svc.Local, ep)
		}
	}
	if d.one(4) {
		svc.Affinity = time.Hour
	}
	port, nodePort := uint16(80+i), uint16(30000+i)
	clusterIP := in(d.clusterIPs, 1+i)
	if d.one(6) {
		clusterIP = d.own.Addr()
	}
	svc.Frontends = []sdk.Frontend{d.frontend(sdk.ClusterIP, clusterIP, port)}
	every := netip.PrefixFrom(clusterIP, 0).Masked().Addr()
	if d.one(2) {
		svc.Frontends = append(svc.Frontends, d.frontend(sdk.NodePort, every, nodePort))
	}
	if d.one(2) {
		svc.Frontends = append(svc.Frontends, d.frontend(sdk.ExternalIP, in(d.external, 1+d.IntN(9)), port))
	}
	if d.one(2) {
		svc.Frontends = append(svc.Frontends, d.frontend(sdk.LoadBalancer, in(d.external, 20+d.IntN(9)), port))
	}
	svc.Normalize()
	return svc
}

func (d dice) frontend(kind sdk.Kind, at netip.Addr, port uint16) sdk.Frontend {
	f := sdk.Frontend{Kind: kind, Addr: netip.AddrPortFrom(at, port), Policy: sdk.Cluster}
	if d.one(3) {
		f.Policy = sdk.Local
	}
	if kind != sdk.ClusterIP && d.one(3) {
		all := []netip.Prefix{d.here, d.clients, d.neighbours}
		f.Sources = all[d.IntN(2):][:1+d.IntN(2)]
	}
	return f
}

// packet returns a random packet from any kind of client to a Service or near one.
func (d dice) packet(s sdktest.Scenario) (p sdktest.Packet) {
	callers := []sdk.Caller{
		{Addr: in(d.here, 1+d.IntN(3))}, {Addr: in(d.here, 9)}, {Addr: in(d.elsewhere, 1+d.IntN(3))},
		{Addr: in(d.clients, 7)}, {Addr: in(d.neighbours, 7)}, {Addr: d.own.Addr(), From: sdk.OnNode},
	}
	p.From = callers[d.IntN(len(callers))]
	if s.Node.Pods.Contains(p.From.Addr, "") {
		p.From.From = sdk.OnPod
	}
	svc := s.Services[d.IntN(len(s.Services))]
	p.To, p.Protocol = svc.Frontends[d.IntN(len(svc.Frontends))].Addr, svc.Name.Protocol
	if p.To.Addr().IsUnspecified() {
		p.To = netip.AddrPortFrom(d.own.Addr(), p.To.Port())
	}
	switch {
	case d.one(12):
		p.To = netip.AddrPortFrom(p.To.Addr(), 999)
	case d.one(20):
		p.To = netip.AddrPortFrom(in(d.clusterIPs, 99), 80)
	case d.one(12) && len(svc.Cluster) > 0:
		p.To = svc.Cluster[0].Addr
	}
	p.Text = fmt.Sprintf("%s %s > %s", p.Protocol, p.From.Addr, p.To)
	return p
}

// seed returns and logs the seed of this run.
func (k kernel) seed() uint64 {
	n, err := strconv.ParseUint(os.Getenv("POINTSMAN_SEED"), 10, 64)
	if err != nil {
		n = rand.Uint64()
	}
	k.Logf("POINTSMAN_SEED=%d", n)
	return n
}

// TestKernelTraced sends real packets of random clients to random Services. The result must agree with a trace through
// the table as nft lists it, and with the contract.
func TestKernelTraced(t *testing.T) {
	g := world(t)
	k := kernel{t, t.TempDir(), "never"}
	random := rand.New(rand.NewPCG(k.seed(), 1))
	for _, family := range families {
		d := dice{random, networks[family], family}
		k.flush()
		p := k.start()
		for round := range 5 {
			s := sdktest.Scenario{Node: d.node()}
			for i := range 8 {
				s.Services = append(s.Services, d.service(i))
			}
			s, _ = g.Place(s)
			k.sync(p, s.Update(uint64(round+1)))
			k.role(p, sdk.Active)
			stage, err := g.Open(t.Context(), p, s)
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				k.sendTraced(stage, s, d.packet(s))
			}
			if err := stage.Close(); err != nil {
				t.Error(err)
			}
		}
		p.die()
		k.checkListing()
	}
}

// sendTraced sends a packet and compares the result with the trace.
func (k kernel) sendTraced(stage sdktest.Stage, s sdktest.Scenario, p sdktest.Packet) {
	k.Helper()
	p.Want = sdktest.Where(slices.Values(s.Services), s.Node, p.From, p.To, p.Protocol)
	want, paths := answered(s, p), k.model(p)
	model := rulestest.Outcome(k.T, paths, want)
	svc, _, _ := sdktest.Find(slices.Values(s.Services), s.Node, p.To, p.Protocol)
	if slices.ContainsFunc(paths, func(w oracle.Path) bool {
		return w.To.Addr() == p.From.Addr && !w.Masquerade && slices.Contains(svc.Cluster, sdk.Endpoint{Addr: w.To})
	}) {
		return // a packet from an endpoint on another node to itself is not masqueraded and gets no reply
	}
	atNode := slices.ContainsFunc(want.Endpoints, func(ep netip.AddrPort) bool { return slices.Contains(s.Node.Addrs, ep.Addr()) })
	if svc.Affinity == 0 && !atNode && !model.Equal(want) { // the contract masquerades nothing to the node's own endpoints
		k.Errorf("%s: the trace ends with %s, the contract says %s", p.Text, model, want)
	}
	if p.Want = model; model.Unserved {
		p.Want = sdktest.Outcome{Verdict: sdk.Forward} // wait for whatever answer comes
	}
	a, err := stage.Send(k.Context(), p)
	if errors.Is(err, syscall.EPERM) && model.Verdict != sdk.Forward && !model.Unserved {
		a, err = sdktest.Answer{Verdict: model.Verdict}, nil // the node gets this error for a packet that it may not send
	}
	i := slices.IndexFunc(paths, func(w oracle.Path) bool { return w.Translated && w.To == a.Endpoint })
	switch {
	case model.Unserved:
		if a.Verdict == sdk.Drop && err == nil || a.Verdict == sdk.Forward && (a.Endpoint != p.To || a.Client != p.From.Addr) {
			k.Errorf("%s: %s, %v, but no rule matches in the trace", p.Text, a, err)
		}
	case err != nil, a.Verdict != model.Verdict, a.Verdict == sdk.Forward && i < 0:
		k.Errorf("%s: %s, %v, but the trace ends with %s", p.Text, a, err, model)
	case a.Verdict == sdk.Forward && paths[i].Masquerade != (a.Client != p.From.Addr) && p.From.From != sdk.OnNode:
		k.Errorf("%s: the endpoint saw %s, but the trace ends with %s", p.Text, a.Client, model)
	}
}

// model returns the possible paths of a packet through the table as it is now.
func (k kernel) model(p sdktest.Packet) []oracle.Path {
	k.Helper()
	conn, err := nftnl.Dial()
	if err != nil {
		k.Fatal(err)
	}
	defer conn.Close()
	table, err := oracle.ReadTable(k.Context(), conn.List(ipOf(sdk.FamilyOf(p.To.Addr())).NFT(), table))
	if err != nil {
		k.Fatal(err)
	}
	addrs, err := flows.Addrs(net.InterfaceAddrs)
	if err != nil {
		k.Fatal(err)
	}
	var own []netip.Addr
	for a := range addrs {
		own = append(own, a)
	}
	paths, err := trace(nodeOf(table), rulestest.Packet(p, own))
	if err != nil {
		k.Fatal(err)
	}
	return paths
}
