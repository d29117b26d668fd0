// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
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
	packet := oracle.Packet{
		Protocol: p.Protocol.String(), From: netip.AddrPortFrom(p.From.Addr, 40000), To: p.To, In: cmp.Or(p.Interface, "eth0"),
		Local: func(a netip.Addr) bool {
			return slices.Contains(s.node.Addrs, a) || a.IsLoopback() || p.From.From == sdk.OnNode && a == p.From.Addr
		},
	}
	if p.From.From == sdk.OnNode {
		packet.In = ""
	}
	paths, err := oracle.Node{Bases: oracle.IPTables(s.tables(sdk.FamilyOf(p.To.Addr()), role)).Bases()}.Walk(packet)
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

// TestRules shows the rules of a few frontends.
func TestRules(t *testing.T) {
	node := sdk.Node{
		Addrs: addrs("192.0.2.10"), NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, MasqueradeBit: 14,
		Pods: sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/24")}},
	}
	web := svc("web", "cluster-ip 172.30.0.41:80, load-balancer 198.51.100.1:80 local, node-port 0.0.0.0:30080", "10.180.1.1:8080")
	web.Frontends[1].Sources = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("10.180.0.0/16")}
	web.HealthPort = 31080
	dns := udp(svc("dns", "cluster-ip 172.30.0.10:53", "10.180.1.2:5353"))
	gone := svc("gone", "cluster-ip 172.30.0.42:80", "")
	tables := newScene(t, node, []sdk.Service{web, dns, gone}).tables(sdk.IPv4, sdk.Active)
	var got []string
	for _, id := range slices.SortedFunc(maps.Keys(tables), iptables.ID.Compare) {
		for _, r := range tables[id] {
			got = append(got, id.Table+" "+strings.TrimPrefix(id.Chain, "KUBE-")+" "+string(r))
		}
	}
	want := strings.Split(strings.TrimSpace(wantRules), "\n")
	for _, l := range got {
		if !slices.Contains(want, l) {
			t.Errorf("unexpected: %s", l)
		}
	}
	for _, l := range want {
		if !slices.Contains(got, l) {
			t.Errorf("missing: %s", l)
		}
	}
}

const wantRules = `
filter FORWARD -m conntrack --ctstate NEW -j KUBE-PORTALS-DENY
filter INPUT -m conntrack --ctstate NEW -j KUBE-PORTALS-DENY
filter INPUT -m conntrack ! --ctstate RELATED,ESTABLISHED -j KUBE-NODEPORT-NON-LOCAL
filter NODEPORT-NON-LOCAL -p tcp -m tcp --dport 1000 -g KUBE-PORTALS-OWN
filter NODEPORT-NON-LOCAL -p tcp -m tcp --dport 1001 -g KUBE-PORTALS-OWN
filter NODEPORT-NON-LOCAL -p tcp -m tcp --dport 1002 -g KUBE-PORTALS-OWN
filter NODEPORT-NON-LOCAL -p tcp -m tcp --dport 31080 -j ACCEPT
filter NODEPORT-NON-LOCAL -p udp -m udp --dport 2000 -g KUBE-PORTALS-OWN
filter OUTPUT -m conntrack --ctstate NEW -m mark ! --mark 0x2000/0x2000 -j KUBE-PORTALS-DENY
filter PORTALS-LOOPED -d 198.51.100.1/32 -j DROP
filter PORTALS-DENY -m conntrack --ctstate DNAT -j RETURN
filter PORTALS-DENY -j KUBE-PORTALS-VIP
filter PORTALS-DENY -d 192.0.2.10/32 -j KUBE-NODEPORT-ANY
filter PORTALS-OWN -m conntrack --ctstate DNAT -j ACCEPT
filter PORTALS-OWN -p tcp -j REJECT --reject-with tcp-reset
filter PORTALS-OWN -j REJECT --reject-with icmp-port-unreachable
filter PORTALS-VIP -d 172.30.0.42/32 -p tcp -m tcp --dport 80 -m comment --comment "ns1/gone" -j REJECT --reject-with icmp-port-unreachable
filter PORTALS-VIP -d 198.51.100.1/32 -p tcp -m tcp --dport 80 -m comment --comment "ns1/web" -j DROP
nat NODEPORT-ANY -p tcp -m tcp --dport 30080 -m comment --comment "ns1/web" -j KUBE-PORTALS-ANY
nat OUTPUT -m mark ! --mark 0x2000/0x2000 -j KUBE-PORTALS-HOST
nat PORTALS-ANY -s 10.180.0.0/24 -j KUBE-PORTALS-POD
nat PORTALS-ANY -p tcp -j DNAT --to-destination 192.0.2.10:1000
nat PORTALS-ANY -m addrtype --src-type LOCAL -j KUBE-PORTALS-NODE
nat PORTALS-CONTAINER -j KUBE-PORTALS-VIP
nat PORTALS-CONTAINER -d 192.0.2.10/32 -j KUBE-NODEPORT-ANY
nat PORTALS-HOST -j KUBE-PORTALS-VIP
nat PORTALS-HOST -d 192.0.2.10/32 -j KUBE-NODEPORT-ANY
nat PORTALS-INSIDE -m addrtype --src-type LOCAL -j KUBE-PORTALS-NODE
nat PORTALS-INSIDE -s 10.180.0.0/24 -j KUBE-PORTALS-POD
nat PORTALS-INSIDE -j ACCEPT
nat PORTALS-NODE -p tcp -j REDIRECT --to-ports 1002
nat PORTALS-POD -p tcp -j DNAT --to-destination 192.0.2.10:1001
nat PORTALS-VIP -d 172.30.0.10/32 -p udp -m udp --dport 53 -m comment --comment "ns1/dns" -j DNAT --to-destination 192.0.2.10:2000
nat PORTALS-VIP -d 172.30.0.41/32 -p tcp -m tcp --dport 80 -m comment --comment "ns1/web" -j KUBE-PORTALS-ANY
nat PORTALS-VIP -d 172.30.0.42/32 -p tcp -m tcp --dport 80 -m comment --comment "ns1/gone" -j ACCEPT
nat PORTALS-VIP -d 198.51.100.1/32 -p tcp -m tcp --dport 80 -m comment --comment "ns1/web" -j KUBE-PS-STE3YP5QVCQIFTTR
nat PREROUTING -j KUBE-PORTALS-CONTAINER
nat PS-STE3YP5QVCQIFTTR -s 198.18.0.0/15 -p tcp -j KUBE-PORTALS-INSIDE
nat PS-STE3YP5QVCQIFTTR -s 10.180.0.0/16 -p tcp -j KUBE-PORTALS-INSIDE
nat PS-STE3YP5QVCQIFTTR -j ACCEPT
`
