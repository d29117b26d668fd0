// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
)

// most is the maximum number of our rules in one table that may be evaluated for a new connection before it reaches its
// Service's own chain.
const most = 40

// handful is this maximum for a connection that no Service has.
const handful = 9

// cluster returns n Services with different addresses from addr.
func cluster(n int, addr func(i int) netip.Addr) []sdk.Service {
	services := make([]sdk.Service, 0, n)
	seen := make(map[netip.Addr]bool, n)
	for i := 0; len(services) < n; i++ {
		a := addr(i)
		if seen[a] {
			continue
		}
		seen[a] = true
		services = append(services, service(len(services), sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(a, 80)}))
	}
	return services
}

func service(i int, frontends ...sdk.Frontend) sdk.Service {
	name := sdk.Name{Namespace: "ns", Service: fmt.Sprintf("s%d", i), Protocol: sdk.TCP, Family: sdk.FamilyOf(frontends[0].Addr.Addr())}
	ep := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 180, byte(i >> 8), byte(i)}), 8080)
	if name.Family == sdk.IPv6 {
		ep = netip.AddrPortFrom(v6(uint64(i)+1<<32), 8080)
	}
	return sdk.Service{Name: name, Frontends: frontends, Cluster: []sdk.Endpoint{{Addr: ep}}}
}

func v4(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

func v6(n uint64) netip.Addr {
	b := netip.MustParseAddr("fd00:10:96::").As16()
	binary.BigEndian.PutUint64(b[8:], n)
	return netip.AddrFrom16(b)
}

const base = 10<<24 | 96<<16 // 10.96.0.0

// Few rules are evaluated for a packet to any of 30,000 Services, or to none, however their addresses are distributed
// and however many ports one address or the node has. A packet that belongs to no Service leaves after a handful of
// rules.
func TestFewRulesAt30000Services(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // otherwise garbage collection takes half of the time
	const n = 30000
	random := rand.New(rand.NewPCG(1, 2))
	node := sdk.Node{Addrs: []netip.Addr{v4(192<<24 | 2<<8 | 10), v6(99)}, NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		Pods: sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/16")}}, MasqueradeBit: 14}
	dense := func(i int) netip.Addr { return v4(base + uint32(i) + 1) }
	unserved := cluster(n, dense)
	for i := range unserved {
		unserved[i].Cluster = nil
	}
	for _, c := range []struct {
		name     string
		services []sdk.Service
	}{
		{"dense, one with 100 ports, 2700 node ports", manyPorts(cluster(n, dense))},
		{"ipv6 random", cluster(n, func(int) netip.Addr { return v6(random.Uint64()) })},
		{"no endpoint", unserved},
	} {
		t.Run(c.name, func(t *testing.T) { fewRules(t, node, c.services, n, random) })
	}
}

// manyPorts gives 2,700 of the services a node port, and adds 100 Services at other ports of one address.
func manyPorts(services []sdk.Service) []sdk.Service {
	for i := range 2700 {
		services[i].Frontends = append(services[i].Frontends, sdk.Frontend{Kind: sdk.NodePort, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(30000+i))})
	}
	n, addr := len(services), services[len(services)/2].Frontends[0].Addr.Addr()
	for port := range 100 {
		services = append(services, service(n+port, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(addr, uint16(8000+port))}))
	}
	return services
}

// fewRules counts the rules that are evaluated for packets to services and to addresses without a Service. The first n
// services are much alike, so only a sample of them is called, and only called Services get all chains.
func fewRules(t *testing.T, node sdk.Node, services []sdk.Service, n int, random *rand.Rand) {
	family := services[0].Name.Family
	b := onFake(t, family, node)
	pieces := make(map[sdk.Name]rules.Piece, len(services))
	var called []sdk.Service
	for i, svc := range services {
		if i%31 == 0 || i >= n { // all special ones, and a sample of the others
			called = append(called, svc)
			pieces[svc.Name] = want(svc, node, false)
			continue
		}
		r := render{node: node}
		for _, f := range svc.Frontends {
			r.addFrontend(svc, f)
		}
		for _, chain := range []string{clusterChain(svc.Name), externalChain(svc.Name)} {
			r.addChain(svc, nat(chain))
		}
		pieces[svc.Name] = rules.NewPiece(r.chains, r.entries)
	}
	b.write(t, pieces)
	tables := b.tables()
	maps.DeleteFunc(tables, func(id iptables.ID, rules []iptables.Rule) bool { return len(rules) == 0 && !isFixed(id) })
	tracer := oracle.IPTables(tables)

	worst, sum, packets := 0, 0, 0
	probe := func(to netip.AddrPort) {
		for _, in := range []string{"eth0", ""} {
			n := countRules(t, tracer, to, in, node)
			worst, sum, packets = max(worst, n), sum+n, packets+1
		}
	}
	for _, svc := range called {
		for _, f := range svc.Frontends {
			to := f.Addr
			if to.Addr().IsUnspecified() {
				to = netip.AddrPortFrom(node.Addrs[0], to.Port())
			}
			probe(to)
		}
	}
	internet := netip.MustParseAddrPort("198.51.100.7:443")
	if family == sdk.IPv6 {
		internet = netip.MustParseAddrPort("[2001:db8::7]:443")
	}
	if n := countRules(t, tracer, internet, "eth0", node); n > handful {
		t.Errorf("%d rules are evaluated for a packet to the internet", n)
	}
	for range 1000 { // and to addresses of no Service, near and far
		far := netip.AddrPortFrom(v4(base+random.Uint32N(1<<20)), 81)
		if family == sdk.IPv6 {
			far = netip.AddrPortFrom(v6(random.Uint64()), 81)
		}
		probe(far)
	}
	t.Logf("at most %d rules, on average %.1f", worst, float64(sum)/float64(packets))
	if worst > most {
		t.Errorf("%d rules are evaluated for a packet, want at most %d", worst, most)
	}
}

// countRules returns the number of rules that are evaluated for a packet, in the table with the most.
func countRules(t *testing.T, tracer *oracle.Rules, to netip.AddrPort, in string, node sdk.Node) int {
	t.Helper()
	from := netip.AddrPortFrom(v4(192<<24|2<<8|7), 40000)
	if to.Addr().Is6() {
		from = netip.AddrPortFrom(v6(7), 40000)
	}
	paths, err := trace(tracer, oracle.Packet{Protocol: "tcp", From: from, To: to, In: in, Local: func(a netip.Addr) bool { return len(node.Addrs) > 0 && (a == node.Addrs[0] || a == node.Addrs[1]) }})
	if err != nil {
		t.Fatal(err)
	}
	return max(evaluated(paths[0], "nat", atService), evaluated(paths[0], "filter", atService))
}

// evaluated counts the rules of a table that were evaluated for a packet, at the hook with the most. It stops at
// the first step for which stop returns true.
func evaluated(p oracle.Path, table string, stop func(oracle.Step) bool) (most int) {
	count, stopped := make(map[string]int), make(map[string]bool)
	for _, s := range p.Steps {
		if s.Table != table {
			continue
		}
		if stopped[s.Hook] = stopped[s.Hook] || stop(s); !stopped[s.Hook] {
			count[s.Hook]++
			most = max(most, count[s.Hook])
		}
	}
	return most
}

// atService reports whether a step is in a Service's own chain.
func atService(s oracle.Step) bool {
	for _, stem := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-"} {
		if strings.HasPrefix(s.Chain, stem) {
			return true
		}
	}
	return false
}

// For n endpoints, a packet is compared with about 2·√n rules, and each endpoint has the same probability.
func TestManyEndpoints(t *testing.T) {
	svc := large(250)
	for i := range svc.Cluster {
		svc.Cluster[i] = sdk.Endpoint{Addr: netip.AddrPortFrom(v4(10<<24|180<<16|uint32(i)), 8080), OnNode: i%25 == 0}
	}
	node := sdk.Node{MasqueradeBit: 14}
	tracer := oracle.IPTables(tablesOf(t, sdk.IPv4, node, []sdk.Service{svc}).tables())
	paths, err := trace(tracer, oracle.Packet{Protocol: "tcp", From: netip.AddrPortFrom(v4(1), 1), To: svc.Frontends[0].Addr, In: "eth0", Local: func(netip.Addr) bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) != 250 {
		t.Fatalf("%d endpoints are reached, want 250", len(paths))
	}
	for _, p := range paths {
		if p.Chance < 0.99/250 || p.Chance > 1.01/250 {
			t.Errorf("%s is chosen with probability 1/%.1f", p.To, 1/p.Chance)
		}
		if n := evaluated(p, "nat", func(oracle.Step) bool { return false }); n > most {
			t.Errorf("%d rules on the way to %s", n, p.To)
		}
	}
}

// When one of n endpoints of a large Service is added or removed, about √n of its rules are rewritten and all others
// stay. This is also true with affinity, and when n crosses a power of two.
func TestOneOfManyEndpointsCostsLittle(t *testing.T) {
	for _, affinity := range []time.Duration{0, time.Hour} {
		for _, n := range []int{200, 256, 1024, 4096, 20_000} {
			svc := large(n)
			svc.Affinity = affinity
			b := tablesOf(t, sdk.IPv4, sdk.Node{MasqueradeBit: 14}, []sdk.Service{svc})
			for _, to := range []struct {
				what      string
				endpoints []sdk.Endpoint
			}{
				{"remove one", slices.Delete(endpoints(n), n/3, n/3+1)},
				{"add it again", endpoints(n)},
				{"add another one", endpoints(n + 1)},
				{"add two more", endpoints(n + 3)},
			} {
				svc.Cluster = to.endpoints
				written := 0
				for _, block := range blocksOf(t, b.write(t, piecesOf(sdk.IPv4, sdk.Node{MasqueradeBit: 14}, []sdk.Service{svc}))) {
					for _, rules := range block {
						written += len(rules)
					}
				}
				if most := 10 * int(math.Sqrt(float64(n))); written > most || written == 0 {
					t.Errorf("%d endpoints, affinity %s, %s: %d rules are written, want at most %d", n, affinity, to.what, written, most)
				}
			}
		}
	}
}

// endpoints returns n endpoints with consecutive addresses.
func endpoints(n int) []sdk.Endpoint {
	all := make([]sdk.Endpoint, n)
	for i := range all {
		all[i].Addr = netip.AddrPortFrom(v4(11<<24|uint32(i)), 8080)
	}
	return all
}

// A Service with very many endpoints is read back completely, in a time that grows linearly with their number.
func TestManyEndpointsAreReadBack(t *testing.T) {
	for _, affinity := range []time.Duration{0, time.Hour} {
		svc := large(20_000)
		svc.Affinity = affinity
		found := served(sdk.IPv4, tablesOf(t, sdk.IPv4, sdk.Node{MasqueradeBit: 14}, []sdk.Service{svc}).tables())
		if len(found) != 1 || len(found[0].Endpoints) != len(svc.Cluster) {
			t.Fatalf("affinity %s: read back %.100v", affinity, found)
		}
	}
}
