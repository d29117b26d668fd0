// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/sdk"
)

// most is the maximum number of our rules in one table that the kernel may compare with a packet.
const most = 40

// manyServices returns n TCP Services with one endpoint each, at addresses from addr.
func manyServices(n int, addr func(i int) netip.Addr) []sdk.Service {
	services := make([]sdk.Service, 0, n)
	seen := make(map[netip.Addr]bool, n)
	for i := 0; len(services) < n; i++ {
		a := addr(i)
		if seen[a] {
			continue
		}
		seen[a] = true
		services = append(services, sdk.Service{
			Name:      sdk.Name{Namespace: "ns1", Service: fmt.Sprintf("s%d", len(services)), Protocol: sdk.TCP, Family: sdk.FamilyOf(a)},
			Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(a, 80)}},
			Cluster:   []sdk.Endpoint{{Addr: netip.AddrPortFrom(a, 8080)}},
		})
	}
	return services
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

func dense(i int) netip.Addr  { return v4(172<<24 | 16<<16 + uint32(i) + 1) }
func sparse(i int) netip.Addr { return v4(172<<24 | 16<<16 + uint32(i)*97 + 1) }

// bigNode returns a node with two IPv4 addresses that take node ports, and with pod ranges.
func bigNode() sdk.Node {
	return sdk.Node{
		Addrs:     addrs("192.0.2.10 192.0.2.11 fd00:192::10"),
		NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, MasqueradeBit: 14,
		Pods: sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/24"), netip.MustParsePrefix("fd00:180::/64")}},
	}
}

// also adds a frontend to each Service.
func also(services []sdk.Service, f func(i int) sdk.Frontend) []sdk.Service {
	for i := range services {
		services[i].Frontends = append(services[i].Frontends, f(i))
	}
	return services
}

// change calls f for each Service.
func change(services []sdk.Service, f func(*sdk.Service)) []sdk.Service {
	for i := range services {
		f(&services[i])
	}
	return services
}

// With 10,000 Services, the kernel compares the first packet of a connection with few rules, for any distribution of
// addresses and ports, and also if there is no Service at its destination.
func TestFewRules(t *testing.T) {
	const n = 10000
	random := rand.New(rand.NewPCG(1, 2))
	scattered := func(int) netip.Addr { return v4(172<<24 | 16<<16 | random.Uint32N(1<<20)) }
	ranges := []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("203.0.113.0/24")}
	everyPort := func(i int) sdk.Frontend {
		return sdk.Frontend{Kind: sdk.NodePort, Policy: sdk.Local, Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(30000+i))}
	}
	for _, c := range []struct {
		name     string
		services []sdk.Service
	}{
		{"dense", manyServices(n, dense)},
		{"sparse", manyServices(n, sparse)},
		{"random", manyServices(n, scattered)},
		{"ipv6", manyServices(n, func(int) netip.Addr { return v6(random.Uint64()) })},
		{"node ports", also(manyServices(2700, dense), everyPort)},
		{"an address of the node with many ports", also(manyServices(2700, dense), func(i int) sdk.Frontend {
			return sdk.Frontend{Kind: sdk.ExternalIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(192<<24|2<<8|10), uint16(1000+i))}
		})},
		{"external addresses under the local policy", also(manyServices(n, dense), func(i int) sdk.Frontend {
			return sdk.Frontend{Kind: sdk.ExternalIP, Policy: sdk.Local, Addr: netip.AddrPortFrom(v4(203<<24|uint32(i)*31), 80)}
		})},
		{"source ranges", also(manyServices(n, dense), func(i int) sdk.Frontend {
			return sdk.Frontend{Kind: sdk.LoadBalancer, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(203<<24|uint32(i)), 80), Sources: ranges}
		})},
		{"udp", change(manyServices(n, dense), func(s *sdk.Service) { s.Name.Protocol = sdk.UDP })},
		{"no endpoint", change(also(manyServices(2700, scattered), everyPort), func(s *sdk.Service) { s.Cluster = nil })},
	} {
		t.Run(c.name, func(t *testing.T) { fewRules(t, c.services, random) })
	}
}

// fewRules counts the rules that are compared with packets to services and to other destinations.
func fewRules(t *testing.T, services []sdk.Service, random *rand.Rand) {
	node, family := bigNode(), services[0].Name.Family
	tracer := oracle.IPTables(newScene(t, node, services).tables(family, sdk.Active))
	worst := make(map[string]int)
	probe := func(p sdk.Protocol, to netip.AddrPort) {
		for _, in := range []string{"eth0", ""} {
			for table, n := range walked(t, tracer, node, p, to, in) {
				worst[table] = max(worst[table], n)
			}
		}
	}
	for i := 0; i < len(services); i += 29 {
		for _, f := range services[i].Frontends {
			to := f.Addr
			if to.Addr().IsUnspecified() {
				to = netip.AddrPortFrom(node.Addrs[1], to.Port())
			}
			probe(services[i].Name.Protocol, to)
		}
	}
	for range 500 { // destinations without a Service, on the node and elsewhere
		near, far := node.Addrs[0], v4(172<<24|16<<16|random.Uint32N(1<<20))
		if family == sdk.IPv6 {
			near, far = node.Addrs[2], v6(random.Uint64())
		}
		probe(sdk.UDP, netip.AddrPortFrom(near, uint16(random.UintN(1<<16))))
		probe(sdk.TCP, netip.AddrPortFrom(near, uint16(random.UintN(1<<16))))
		probe(sdk.TCP, netip.AddrPortFrom(far, 81))
	}
	if t.Logf("at most %d rules in nat, %d in filter", worst["nat"], worst["filter"]); worst["nat"] > most || worst["filter"] > most {
		t.Errorf("more than %d rules", most)
	}
}

// walked returns the number of rules of each table that are compared with a packet.
func walked(t *testing.T, tracer *oracle.Rules, node sdk.Node, p sdk.Protocol, to netip.AddrPort, in string) map[string]int {
	t.Helper()
	from := netip.MustParseAddr("198.18.0.7")
	switch {
	case in == "" && to.Addr().Is6():
		from = node.Addrs[2]
	case in == "":
		from = node.Addrs[0]
	case to.Addr().Is6():
		from = v6(7)
	}
	paths, err := oracle.Node{Bases: tracer.Bases()}.Walk(oracle.Packet{
		Protocol: p.String(), From: netip.AddrPortFrom(from, 40000), To: to, In: in,
		Local: func(a netip.Addr) bool { return slices.Contains(node.Addrs, a) || a.IsLoopback() },
	})
	if err != nil || len(paths) != 1 {
		t.Fatalf("%s: %d ways, %v", to, len(paths), err)
	}
	count, most := make(map[[2]string]int), make(map[string]int)
	for _, s := range paths[0].Steps {
		count[[2]string{s.Table, s.Hook}]++
		most[s.Table] = max(most[s.Table], count[[2]string{s.Table, s.Hook}])
	}
	return most
}

// What is written for a change does not grow with the number of Services.
func TestChangeCostsTheSame(t *testing.T) {
	cost := make(map[int][]int)
	for _, n := range []int{1000, 10000} {
		services := manyServices(n, sparse)
		s := newScene(t, bigNode(), services)
		s.write(sdk.IPv4, sdk.Active)
		victim := &services[n/3]
		serving := victim.Cluster
		for _, change := range []func(){
			func() { victim.Cluster = nil },
			func() { victim.Cluster = serving },
			func() { victim.Frontends[0].Sources = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")} },
		} {
			change()
			s.put(victim)
			cost[n] = append(cost[n], len(s.write(sdk.IPv4, sdk.Active).String()))
		}
	}
	t.Logf("bytes for each change: %v", cost)
	for i, few := range cost[1000] {
		if many := cost[10000][i]; many > few+1024 || many > 4096 {
			t.Errorf("change %d takes %d bytes among 1,000 Services and %d among 10,000", i, few, many)
		}
	}
}
