// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/field"
	"github.com/pointsman/pointsman/test/traffic"
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

// dial opens a connection from one of the hosts and returns the error.
func (k kernel) dial(h *netns.Host, network string, from netip.Addr, to string) error {
	return k.dialFor(traffic.Timeout, h, network, from, to)
}

// dialFor is dial with a shorter timeout, for connections that should be dropped.
func (k kernel) dialFor(wait time.Duration, h *netns.Host, network string, from netip.Addr, to string) error {
	ctx, cancel := context.WithTimeout(k.Context(), wait)
	defer cancel()
	conn, err := h.Dial(ctx, network, from, netip.MustParseAddrPort(to))
	if err != nil {
		return err
	}
	defer conn.Close()
	if network == "tcp" {
		return nil
	}
	if _, err := conn.Write([]byte("who\n")); err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(wait))
	_, err = conn.Read(make([]byte, 100))
	return err
}

const refusing = `Other ports and addresses.
-- node --
addresses     192.0.2.10 2001:db8::10
service-cidrs 172.30.0.0/16
pods          10.180.0.0/24
-- services --
ns1/web:http tcp
  cluster-ip  172.30.0.41:80
  external-ip 198.51.100.1:80
  endpoint    10.180.0.1:8080 here
-- packets --
10.180.0.9 > 172.30.0.41:80  = 10.180.0.1:8080
`

// Packets to other ports of a ClusterIP are rejected, and packets to addresses in the range of ClusterIPs that no
// Service has are dropped. Packets to other ports of an ExternalIP are routed as without us, because a real machine
// may have the address.
func TestKernelRefusesOtherPorts(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, refusing)
		k.active(g, s)
		pod, client := netip.MustParseAddr("10.180.0.9"), netip.MustParseAddr("198.18.0.7")
		for what, from := range map[string]netip.Addr{"pod": pod, "client": client, "node": netip.MustParseAddr("192.0.2.10")} {
			h, err := g.Host(from)
			if err != nil {
				k.Fatal(err)
			}
			if err := k.dial(h, "tcp", from, "172.30.0.41:81"); !errors.Is(err, syscall.ECONNREFUSED) {
				k.Errorf("%s: another port: %v", what, err)
			}
			if err := k.dial(h, "udp", from, "172.30.0.41:81"); !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EPERM) {
				k.Errorf("%s: another port, by UDP: %v", what, err)
			}
			if err := k.dialFor(time.Second, h, "tcp", from, "172.30.0.99:80"); !errors.Is(err, context.DeadlineExceeded) && !timedOut(err) && !errors.Is(err, syscall.EPERM) {
				k.Errorf("%s: an address that no Service has: %v", what, err)
			}
			if err := k.dial(h, "tcp", from, "198.51.100.1:81"); !errors.Is(err, syscall.EHOSTUNREACH) && !errors.Is(err, syscall.ENETUNREACH) {
				k.Errorf("%s: another port of an ExternalIP: %v", what, err)
			}
		}
	})
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
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
// endpoints keep theirs. A process can import what another one exported.
func TestKernelAffinityOutlivesChanges(t *testing.T) {
	g := world(t)
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
		if err := next.ImportAffinity(k.Context(), entries); err != nil {
			k.Fatal(err)
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

// A new address of the node takes node ports.
func TestKernelNodePortsFollowAddresses(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, sticking)
		k.active(g, s)
		client := netip.MustParseAddr("198.18.0.7")
		h, err := g.Host(client)
		if err != nil {
			k.Fatal(err)
		}
		late := map[string]string{"never": "10.99.7.1", "auto": "10.99.7.2"}[k.protect]
		if err := g.Own(netip.MustParseAddr(late)); err != nil {
			k.Fatal(err)
		}
		eventually.True(k, "the new address takes node ports", func() bool { return k.dial(h, "tcp", client, late+":30080") == nil })
	})
}

// Source ranges apply to node ports as to any other frontend, for clients of each kind.
func TestKernelSourcesOfNodePorts(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, sticking)
		for i, f := range s.Services[0].Frontends {
			if f.Kind == sdk.NodePort {
				s.Services[0].Frontends[i].Sources = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/24"), netip.MustParsePrefix("198.18.0.0/16")}
			}
		}
		_, stage := k.active(g, s)
		for _, p := range s.Packets {
			allowed := p.From.Addr != netip.MustParseAddr("192.0.2.7")
			if !allowed {
				p.Want = sdktest.Outcome{}
			}
			if a, err := stage.Send(k.Context(), p); err != nil || (a.Verdict == sdk.Forward) != allowed {
				k.Errorf("%s: %s, %v", p.Text, a, err)
			}
		}
	})
}

const atOwnAddress = `A Service at the node's own address.
-- node --
addresses 192.0.2.10 2001:db8::10
pods      10.180.0.0/24
-- services --
ns1/web:http tcp
  cluster-ip 192.0.2.10:20819
  node-port  30107
  endpoint   192.0.2.10:26733 here
ns1/far:http tcp
  cluster-ip 172.30.0.41:80
  endpoint   192.0.2.10:26733 here
ns1/out:http tcp
  cluster-ip 172.30.0.42:80
  node-port  30108
  endpoint   10.180.1.1:8080
ns1/local:http tcp
  cluster-ip 172.30.0.43:80
  node-port  30109 local
  endpoint   10.180.0.1:8081 here
-- packets --
198.18.0.7 > 192.0.2.10:20819 = 192.0.2.10:26733 masq
10.180.0.9 > 172.30.0.41:80   = 192.0.2.10:26733
node       > 192.0.2.10:20819 = 192.0.2.10:26733 masq
node       > 172.30.0.41:80   = 192.0.2.10:26733 masq
198.18.0.7 > 192.0.2.10:30108 = 10.180.1.1:8080 masq
10.180.0.9 > 192.0.2.10:30108 = 10.180.1.1:8080 masq
198.18.0.7 > 192.0.2.10:30109 = 10.180.0.1:8081
`

// A ClusterIP may be an address of the node, as that of a host's canary is. Listeners at this address remain reachable,
// directly and through other Services, and node ports are masqueraded by their own policy.
func TestKernelServiceAtOwnAddress(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, atOwnAddress)
		_, stage := k.active(g, s)
		for _, p := range s.Packets {
			a, err := stage.Send(k.Context(), p)
			if err != nil || a.Verdict != sdk.Forward {
				k.Errorf("%s: %s, %v", p.Text, a, err)
			}
			if away := a.Endpoint.Port() < 9000; away && (a.Client != p.From.Addr) != p.Want.Masquerade {
				k.Errorf("%s: the endpoint saw %s", p.Text, a.Client)
			}
		}
		if err := k.dial(g.Node(), "tcp", netip.MustParseAddr("192.0.2.10"), "192.0.2.10:26733"); err != nil {
			k.Errorf("dial the listener at the node's own address: %v", err)
		}
	})
}

// TestKernelField runs cases from public bug reports.
func TestKernelField(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		p := k.start()
		field.Check(k.T, g, p, true)
		field.Beside(k.T, g, p, "iptables-nft", true, true)
	})
}

// Dropped packets are counted by reason.
func TestKernelCountsDrops(t *testing.T) {
	g := world(t)
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

// Watch reports what happens to packets while they pass.
func TestKernelWatches(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) { field.Watch(k.T, g, k.start(), true) })
}
