// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/field"
)

// place parses a scenario and places it on the testbed.
func (k kernel) place(g *netns.Testbed, text string) sdktest.Scenario {
	k.Helper()
	s, err := sdktest.Parse("test", []byte(text))
	if err != nil {
		k.Fatal(err)
	}
	s, left := g.Place(s)
	if len(left) > 0 {
		k.Fatal(left)
	}
	return s
}

// active starts a dataplane that serves s in role Active, and starts the endpoints.
func (k kernel) active(g *netns.Testbed, s sdktest.Scenario) (*plugin, sdktest.Stage) {
	k.Helper()
	p := k.start()
	k.sync(p, s.Update(1))
	k.role(p, sdk.Active)
	stage, err := g.Open(k.Context(), p, s)
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { stage.Close() })
	return p, stage
}

const sticking = `Affinity.
-- node --
addresses 192.0.2.10 2001:db8::10
-- services --
ns1/web:http tcp
  cluster-ip 172.30.0.41:80
  node-port  30080
  affinity   3h
  endpoint   10.180.0.1:8080 here
  endpoint   10.180.1.1:8080
  endpoint   10.180.1.2:8080
-- packets --
10.180.0.9 > 172.30.0.41:80 = 10.180.0.1:8080 10.180.1.1:8080 10.180.1.2:8080
192.0.2.7  > 192.0.2.10:30080 = 10.180.0.1:8080 10.180.1.1:8080 10.180.1.2:8080 masq
198.18.0.7 > 192.0.2.10:30080 = 10.180.0.1:8080 10.180.1.1:8080 10.180.1.2:8080 masq
`

// keptEndpoint returns the endpoint of a client, and checks that several connections reach the same one.
func (k kernel) keptEndpoint(stage sdktest.Stage, p sdktest.Packet) (at netip.AddrPort) {
	k.Helper()
	for range 6 {
		a, err := stage.Send(k.Context(), p)
		if err != nil || a.Verdict != sdk.Forward || at.IsValid() && a.Endpoint != at {
			k.Fatalf("%s: %s, %v; before it was %s", p.Text, a, err, at)
		}
		at = a.Endpoint
	}
	return at
}

// When an endpoint is removed, its clients move to another endpoint at once and keep that one. The clients of other
// endpoints keep theirs. A process can import what another one exported. It ignores entries of unknown Services and
// those that conflict with earlier ones, also in a second import.
func TestKernelAffinityOutlivesChanges(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, sticking)
		p, stage := k.active(g, s)
		var at []netip.AddrPort
		for _, packet := range s.Packets {
			at = append(at, k.keptEndpoint(stage, packet))
		}
		svc := s.Services[0]
		for i := range uint64(4) { // remove and add the first client's endpoint
			less := svc
			less.Cluster = slices.DeleteFunc(slices.Clone(svc.Cluster), func(ep sdk.Endpoint) bool { return ep.Addr == at[0] })
			k.sync(p, sdk.Update{From: 2*i + 1, To: 2*i + 2, Set: []sdk.Service{less}})
			for j, packet := range s.Packets {
				was := at[j]
				if at[j] = k.keptEndpoint(stage, packet); was != at[j] && !slices.ContainsFunc(svc.Cluster, func(ep sdk.Endpoint) bool { return ep.Addr == was }) {
					k.Errorf("%s moved from %s, which still exists, to %s", packet.Text, was, at[j])
				}
			}
			k.sync(p, sdk.Update{From: 2*i + 2, To: 2*i + 3, Set: []sdk.Service{svc}})
			for j, packet := range s.Packets {
				if now := k.keptEndpoint(stage, packet); now != at[j] {
					k.Errorf("%s: after another endpoint was added, the client moved from %s to %s", packet.Text, at[j], now)
				}
			}
		}
		entries := k.exported(p)
		if len(entries) != len(s.Packets) || entries[0].Left <= 2*time.Hour || entries[0].Left > 3*time.Hour {
			k.Errorf("exported: %+v", entries)
		}
		if _, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
			k.Fatal(err)
		}
		p.die()
		next := k.start()
		k.sync(next, s.Update(1))
		for _, e := range slices.Clone(entries) {
			conflict, unknown := e, e
			i := slices.IndexFunc(svc.Cluster, func(ep sdk.Endpoint) bool { return ep.Addr != e.Endpoint })
			conflict.Endpoint, unknown.Name.Service = svc.Cluster[i].Addr, "none"
			entries = append(entries, conflict, unknown)
		}
		for range 2 {
			if err := next.ImportAffinity(k.Context(), entries); err != nil {
				k.Fatal(err)
			}
		}
		k.role(next, sdk.Active)
		for j, packet := range s.Packets {
			if now := k.keptEndpoint(stage, packet); now != at[j] {
				k.Errorf("%s: after an import, the client moved from %s to %s", packet.Text, at[j], now)
			}
		}
		k.checkListing()
	})
}

// TestKernelField runs cases from public bug reports, and watches packets.
func TestKernelField(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		p := k.start()
		field.Check(k.T, g, p, true)
		field.Beside(k.T, g, p, "iptables-nft", true, true)
		p.die()
		field.Watch(k.T, g, k.start(), true)
	})
}

// Dropped packets are counted by reason.
func TestKernelCountsDrops(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		var last *plugin
		start := func() field.Dataplane {
			if last != nil {
				last.die()
			}
			last = k.start()
			return last
		}
		damage := func() { k.nft("flush chain ip pointsman no-endpoint; flush chain ip6 pointsman no-endpoint") }
		if k.protect == "auto" { // no other program can flush a chain of an owned table
			damage = nil
		}
		field.Drops(k.T, g, start, damage, true)
		k.checkListing()
	})
}
