// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// A scene has the rules of a node for services, in fake tables. There are no sockets: the ports of the shared TCP sockets begin
// at 1000, those of UDP sockets at 2000.
type scene struct {
	testing.TB
	node     sdk.Node
	services []sdk.Service
	rules    map[sdk.Family]*familyRules
	fakes    map[sdk.Family]*rulestest.Fake
	udp      map[uint16]sdk.Service
}

func newScene(t testing.TB, node sdk.Node, services []sdk.Service) *scene {
	t.Helper()
	s := &scene{t, node, services, make(map[sdk.Family]*familyRules), make(map[sdk.Family]*rulestest.Fake), make(map[uint16]sdk.Service)}
	for _, family := range families {
		s.fakes[family] = rulestest.NewFake()
		b := newFamilyRules(iptables.Tool{Family: family, Backend: "fake", Kernel: s.fakes[family]})
		b.node.node, b.node.ports = node, [3]uint16{1000, 1001, 1002}
		for _, addr := range node.Addrs {
			if node.TakesNodePorts(addr) {
				b.node.nodePorts = append(b.node.nodePorts, netip.PrefixFrom(addr, addr.BitLen()))
			}
			if sdk.FamilyOf(addr) == family {
				b.node.to = addr
			}
		}
		s.rules[family] = b
		s.list(family)
	}
	for i := range services {
		s.put(&services[i])
	}
	return s
}

func (s *scene) list(of sdk.Family) {
	s.Helper()
	if _, err := s.rules[of].List(s.Context()); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) put(svc *sdk.Service) {
	b := s.rules[svc.Name.Family]
	var all frontendRules
	for _, f := range svc.Frontends {
		c := renderer{node: &b.node, service: svc, frontend: f}
		if svc.Name.Protocol == sdk.UDP && len(svc.Cluster) > 0 {
			c.udp = 2000 + uint16(len(s.udp))
			s.udp[c.udp] = *svc
		}
		at := c.rules()
		all.chains, all.entries = append(all.chains, at.chains...), append(all.entries, at.entries...)
	}
	if svc.HealthPort != 0 {
		all.entries = append(all.entries, healthEntry(svc.HealthPort))
	}
	b.SetDesired(map[sdk.Name]rules.Piece{svc.Name: rules.NewPiece(all.chains, all.entries)})
}

// write writes the rules of a family for a role, and returns the script, or nil if nothing was written.
func (s *scene) write(of sdk.Family, role sdk.Role) *iptables.Script {
	s.Helper()
	s.fakes[of].Last = nil
	s.rules[of].setRole(role)
	if failed, err := s.rules[of].Plan().Apply(s.Context()); err != nil || len(failed) > 0 {
		s.Fatal(failed, err)
	}
	return s.fakes[of].Last
}

// tables returns the tables of a family in a role.
func (s *scene) tables(f sdk.Family, role sdk.Role) iptables.Tables {
	s.Helper()
	s.write(f, role)
	return s.fakes[f].Tables
}

// send evaluates the rules for a packet, and then its route as the relay does, for the origin that the socket is for.
func (s *scene) send(t *testing.T, p sdktest.Packet, role sdk.Role) sdktest.Outcome {
	t.Helper()
	paths, err := oracle.Node{Bases: oracle.IPTables(s.tables(sdk.FamilyOf(p.To.Addr()), role)).Bases()}.Walk(rulestest.Packet(p, s.node.Addrs))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%s: %d ways, %v", p.Text, len(paths), err)
	}
	switch path := paths[0]; {
	case path.Verdict == oracle.Reject:
		return sdktest.Outcome{Verdict: sdk.Reject}
	case path.Verdict == oracle.Drop:
		return sdktest.Outcome{Verdict: sdk.Drop}
	case !path.Translated:
		return sdktest.Outcome{Unserved: true}
	default:
		return s.relayed(t, p, path.To)
	}
}

// relayed returns what the relay does with a packet at one of its sockets.
func (s *scene) relayed(t *testing.T, p sdktest.Packet, at netip.AddrPort) sdktest.Outcome {
	t.Helper()
	from := p.From
	if p.Protocol == sdk.TCP {
		if at.Port() < 1000 || at.Port() > 1002 {
			t.Fatalf("%s: no TCP socket is at %s", p.Text, at)
		}
		from.From = sdk.Origin(at.Port() - 1000)
	} else if svc, ok := s.udp[at.Port()]; !ok || svc.Name != p.Service {
		t.Fatalf("%s: no socket of %s is at %s", p.Text, p.Service, at)
	}
	for _, svc := range s.services {
		if svc.Name != p.Service {
			continue
		}
		route := svc.Route(p.Frontend, from, s.node)
		o := sdktest.Outcome{Verdict: route.Verdict}
		for _, ep := range route.Endpoints {
			o.Endpoints = append(o.Endpoints, ep.Addr)
		}
		slices.SortFunc(o.Endpoints, netip.AddrPort.Compare)
		return o
	}
	t.Fatalf("%s: no Service has it", p.Text)
	return sdktest.Outcome{}
}

// The rules send the packets of all scenarios to the right socket, or reject or drop them. This needs no kernel.
func TestScenariosTraced(t *testing.T) {
	for _, s := range sdktest.Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			scene := newScene(t, s.Node, s.Services)
			for _, p := range s.Packets {
				if p.Protocol == sdk.SCTP {
					continue // the host withholds these Services
				}
				want := p.Want
				want.Masquerade, want.Hairpin = false, nil // endpoints always see the node's address
				if got := scene.send(t, p, sdk.Active); !got.Equal(want) {
					t.Errorf("line %d, %s: found %s", p.Line, p.Text, got)
				}
				if got := scene.send(t, p, sdk.Standby); !got.Unserved {
					t.Errorf("line %d, %s: in standby found %s", p.Line, p.Text, got)
				}
			}
		})
	}
}

// manyServices returns n TCP Services with one endpoint each, at scattered addresses.
func manyServices(n int) []sdk.Service {
	services := make([]sdk.Service, n)
	for i := range services {
		a := i*97 + 1
		addr := netip.AddrFrom4([4]byte{172, byte(16 + a>>16), byte(a >> 8), byte(a)})
		services[i] = svc(fmt.Sprintf("s%d", i), fmt.Sprintf("cluster-ip %s:80", addr), fmt.Sprintf("%s:8080", addr))
	}
	return services
}

// bigNode returns a node with two IPv4 addresses that take node ports, and with pod ranges.
func bigNode() sdk.Node {
	return sdk.Node{
		Addrs:     addrs("192.0.2.10 192.0.2.11 fd00:192::10"),
		NodePorts: []netip.Prefix{sourceRange("0.0.0.0/0"), sourceRange("::/0")}, MasqueradeBit: 14,
		Pods: sdk.Pods{CIDRs: []netip.Prefix{sourceRange("10.180.0.0/24"), sourceRange("fd00:180::/64")}},
	}
}

// The kernel compares the first packet of a connection with few rules, whatever frontends the Services have.
func TestFewRules(t *testing.T) {
	services := manyServices(2700)
	for i := range services {
		addr := netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})
		services[i].Frontends = append(services[i].Frontends,
			sdk.Frontend{Kind: sdk.LoadBalancer, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(addr, 80), Sources: []netip.Prefix{sourceRange("198.18.0.0/15")}},
			sdk.Frontend{Kind: sdk.NodePort, Policy: sdk.Local, Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(30000+i))})
		if i%2 == 0 {
			services[i].Cluster = nil
		}
	}
	s := newScene(t, bigNode(), services)
	n := oracle.Node{Bases: oracle.IPTables(s.tables(sdk.IPv4, sdk.Active)).Bases()}
	for i := 0; i < len(services); i += 29 {
		for _, f := range services[i].Frontends {
			p := sdktest.Packet{Protocol: sdk.TCP, From: sdk.Caller{Addr: netip.MustParseAddr("203.0.113.7")}, To: f.Addr}
			if f.Kind == sdk.NodePort {
				p.To = netip.AddrPortFrom(s.node.Addrs[1], f.Addr.Port())
			}
			paths, err := n.Walk(rulestest.Packet(p, s.node.Addrs))
			if err != nil || len(paths) != 1 {
				t.Fatalf("%s: %d ways, %v", f, len(paths), err)
			}
			compared := make(map[[2]string]int)
			for _, step := range paths[0].Steps {
				compared[[2]string{step.Table, step.Hook}]++
			}
			for at, rules := range compared {
				if rules > 40 {
					t.Errorf("%s: the packet is compared with %d rules of %s", f, rules, at)
				}
			}
		}
	}
}
