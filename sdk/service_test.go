// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// sample returns a Service with a value in every field.
func sample() Service {
	return Service{
		Name: Name{Namespace: "ns1", Service: "web", Port: "http", Protocol: UDP, Family: IPv4},
		Frontends: []Frontend{
			{Kind: ClusterIP, Addr: ap("172.30.0.41:80"), Policy: Cluster},
			{Kind: NodePort, Addr: ap("0.0.0.0:30080"), Policy: Local},
			{Kind: LoadBalancer, Addr: ap("203.0.113.5:80"), Policy: Local, Sources: prefixes("10.0.0.0/8", "198.18.0.0/15")},
		},
		Cluster:    []Endpoint{{Addr: ap("10.180.0.1:8080"), OnNode: true}, {Addr: ap("10.180.1.1:8080")}},
		Local:      []Endpoint{{Addr: ap("10.180.0.1:8080"), OnNode: true}},
		Serving:    []netip.Addr{netip.MustParseAddr("10.180.0.2"), netip.MustParseAddr("10.180.1.2")},
		Affinity:   3 * time.Hour,
		HealthPort: 31000,
	}
}

// other checks that each change makes a value unequal, and that there is a change for each field
// of the type.
func other[V any](t *testing.T, v V, equal func(V, V) bool, changes map[string]func(*V)) {
	t.Helper()
	for i := range reflect.TypeFor[V]().NumField() {
		field := reflect.TypeFor[V]().Field(i).Name
		change := changes[field]
		if change == nil {
			t.Errorf("%T.%s: nothing here changes it", v, field)
			continue
		}
		changed := v
		change(&changed)
		if equal(v, changed) || equal(changed, v) {
			t.Errorf("%T: another %s is equal", v, field)
		}
	}
}

// TestEqual changes each field alone: Equal compares all of them.
func TestEqual(t *testing.T) {
	if !sample().Equal(sample()) || !(Service{}).Equal(Service{Cluster: []Endpoint{}}) {
		t.Error("a Service does not equal itself")
	}
	other(t, sample(), Service.Equal, map[string]func(*Service){
		"Name":       func(s *Service) { s.Name.Family = IPv6 },
		"Frontends":  func(s *Service) { s.Frontends = s.Frontends[1:] },
		"Cluster":    func(s *Service) { s.Cluster = []Endpoint{{Addr: s.Cluster[0].Addr}, s.Cluster[1]} },
		"Local":      func(s *Service) { s.Local = nil },
		"Serving":    func(s *Service) { s.Serving = s.Serving[:1] },
		"Affinity":   func(s *Service) { s.Affinity++ },
		"HealthPort": func(s *Service) { s.HealthPort = 0 },
	})
	other(t, sample().Frontends[2], Frontend.Equal, map[string]func(*Frontend){
		"Kind":    func(f *Frontend) { f.Kind = ExternalIP },
		"Addr":    func(f *Frontend) { f.Addr = ap("203.0.113.5:81") },
		"Policy":  func(f *Frontend) { f.Policy = Cluster },
		"Sources": func(f *Frontend) { f.Sources = nil },
	})
}

// TestNormalize: a Service with shuffled and repeated elements becomes the same Service.
func TestNormalize(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		s := sample()
		s.Frontends[2].Sources = mix(random, s.Frontends[2].Sources)
		random.Shuffle(len(s.Frontends), func(i, j int) { s.Frontends[i], s.Frontends[j] = s.Frontends[j], s.Frontends[i] })
		s.Cluster, s.Local, s.Serving = mix(random, s.Cluster), mix(random, s.Local), mix(random, s.Serving)
		s.Cluster = append(s.Cluster, Endpoint{Addr: s.Cluster[0].Addr}) // from another slice, without a node
		for _, ep := range s.Cluster {
			if ep.OnNode {
				s.Cluster = append(s.Cluster, Endpoint{Addr: ep.Addr})
			}
		}
		s.Normalize()
		if !s.Equal(sample()) {
			t.Fatalf("got %v", s)
		}
		s.Normalize()
		if !s.Equal(sample()) {
			t.Fatalf("the second time: %v", s)
		}
	}
	empty := Service{}
	empty.Normalize()
	if !empty.Equal(Service{}) {
		t.Errorf("an empty Service became %v", empty)
	}
}

// mix repeats some elements of a list and shuffles it.
func mix[V any](random *rand.Rand, list []V) []V {
	mixed := slices.Clone(list)
	for range random.IntN(3) {
		mixed = append(mixed, list[random.IntN(len(list))])
	}
	random.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	return mixed
}

// TestCompare: each order is total and compares the fields in the documented order.
func TestCompare(t *testing.T) {
	ascends(t, Name.Compare, []Name{
		{},
		{Namespace: "a", Service: "b"},
		{Namespace: "a", Service: "b", Port: "http"},
		{Namespace: "a", Service: "b", Port: "http", Protocol: TCP, Family: IPv4},
		{Namespace: "a", Service: "b", Port: "http", Protocol: TCP, Family: IPv6},
		{Namespace: "a", Service: "b", Port: "http", Protocol: UDP, Family: IPv4},
		{Namespace: "a", Service: "c"},
		{Namespace: "b", Service: "a"},
	})
	ascends(t, Frontend.Compare, []Frontend{
		{Kind: ClusterIP, Addr: ap("10.0.0.2:80")},
		{Kind: ClusterIP, Addr: ap("10.0.0.2:81")},
		{Kind: ClusterIP, Addr: ap("10.0.0.10:80")},
		{Kind: NodePort, Addr: ap("0.0.0.0:80")},
		{Kind: NodePort, Addr: ap("[::]:80")},
	})
	ascends(t, Endpoint.Compare, []Endpoint{
		{Addr: ap("10.0.0.2:80"), OnNode: true},
		{Addr: ap("10.0.0.2:80")},
		{Addr: ap("10.0.0.10:80"), OnNode: true},
	})
}

func ascends[V any](t *testing.T, compare func(V, V) int, list []V) {
	t.Helper()
	for i, a := range list {
		for j, b := range list {
			if got, want := compare(a, b), cmpInt(i, j); got != want {
				t.Errorf("%v beside %v: %d, want %d", a, b, got, want)
			}
		}
	}
}

func cmpInt(i, j int) int {
	switch {
	case i < j:
		return -1
	case i > j:
		return 1
	}
	return 0
}

// TestReachable: the result is Cluster and Local, each address once, and OnNode if it is in one of
// them.
func TestReachable(t *testing.T) {
	a, b, c := ap("10.0.0.1:80"), ap("10.0.0.2:80"), ap("10.0.0.3:80")
	s := Service{
		Cluster: []Endpoint{{Addr: a}, {Addr: c}},
		Local:   []Endpoint{{Addr: a, OnNode: true}, {Addr: b, OnNode: true}},
	}
	want := []Endpoint{{Addr: a, OnNode: true}, {Addr: b, OnNode: true}, {Addr: c}}
	if got := s.Reachable(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(s.Cluster) != 2 || s.Cluster[0].OnNode {
		t.Errorf("it wrote to the Service's lists: %v", s.Cluster)
	}
	if got := (Service{}).Reachable(); len(got) != 0 {
		t.Errorf("an empty Service reaches %v", got)
	}
}

func TestFamilyOf(t *testing.T) {
	for addr, want := range map[netip.Addr]Family{
		netip.MustParseAddr("10.0.0.1"):        IPv4,
		netip.MustParseAddr("fd00::1"):         IPv6,
		netip.MustParseAddr("::ffff:10.0.0.1"): IPv6,
		{}:                                     0,
	} {
		if got := FamilyOf(addr); got != want {
			t.Errorf("%s: %s", addr, got)
		}
	}
}

// TestCheck makes one mistake at a time.
func TestCheck(t *testing.T) {
	if err := sample().Check(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		wrong func(*Service)
		want  string
	}{
		{func(s *Service) { s.Name.Namespace = "" }, `name "/web:http/udp4" lacks a namespace or a Service`},
		{func(s *Service) { s.Name.Service = "" }, `name "ns1/:http/udp4" lacks a namespace or a Service`},
		{func(s *Service) { s.Name.Protocol = 0 }, "unknown protocol 0"},
		{func(s *Service) { s.Name.Protocol = 4 }, "unknown protocol 4"},
		{func(s *Service) { *s = Service{Name: Name{Namespace: "a", Service: "b", Protocol: TCP}} }, "unknown IP family 0"},
		{func(s *Service) { *s = Service{Name: Name{Namespace: "a", Service: "b", Protocol: TCP, Family: 3}} }, "unknown IP family 3"},
		{func(s *Service) { s.Affinity = -time.Second }, "negative affinity -1s"},
		{func(s *Service) { s.Frontends[0].Kind = 0 }, "frontend kind(0) 172.30.0.41:80: unknown kind 0"},
		{func(s *Service) { s.Frontends[0].Kind = 5 }, "frontend kind(5) 172.30.0.41:80: unknown kind 5"},
		{func(s *Service) { s.Frontends[0].Policy = 0 }, "frontend cluster-ip 172.30.0.41:80 policy(0): unknown policy 0"},
		{func(s *Service) { s.Frontends[0].Policy = 3 }, "frontend cluster-ip 172.30.0.41:80 policy(3): unknown policy 3"},
		{func(s *Service) { s.Frontends[0].Addr = ap("[fd00::1]:80") }, "frontend cluster-ip [fd00::1]:80: no ipv4 address with a port"},
		{func(s *Service) { s.Frontends[0].Addr = ap("[::ffff:10.0.0.1]:80") }, "frontend cluster-ip [::ffff:10.0.0.1]:80: no ipv4 address with a port"},
		{func(s *Service) { s.Frontends[0].Addr = ap("172.30.0.41:0") }, "frontend cluster-ip 172.30.0.41:0: no ipv4 address with a port"},
		{func(s *Service) { s.Frontends[0].Addr = netip.AddrPort{} }, "frontend cluster-ip invalid AddrPort: no ipv4 address with a port"},
		{func(s *Service) { s.Frontends[1].Addr = ap("0.0.0.0:0") }, "frontend node-port *:0 local: no ipv4 address with a port"},
		{func(s *Service) { s.Frontends[2].Addr = ap("0.0.0.0:80") }, "frontend load-balancer 0.0.0.0:80 local from 10.0.0.0/8 198.18.0.0/15: only a node port may stand for every address"},
		{func(s *Service) { s.Frontends[2].Sources = prefixes("fd00::/8") }, "frontend load-balancer 203.0.113.5:80 local from fd00::/8: source range fd00::/8 is no ipv4 range"},
		{func(s *Service) { s.Frontends[2].Sources = []netip.Prefix{{}} }, "frontend load-balancer 203.0.113.5:80 local from invalid Prefix: source range invalid Prefix is no ipv4 range"},
		{func(s *Service) { s.Cluster[0].Addr = ap("[fd00::1]:80") }, "endpoint [fd00::1]:80 is no ipv4 address with a port"},
		{func(s *Service) { s.Cluster[0].Addr = ap("10.180.0.1:0") }, "endpoint 10.180.0.1:0 is no ipv4 address with a port"},
		{func(s *Service) { s.Local[0].Addr = ap("0.0.0.0:80") }, "endpoint 0.0.0.0:80 is no ipv4 address with a port"},
		{func(s *Service) { s.Local[0].Addr = netip.AddrPort{} }, "endpoint invalid AddrPort is no ipv4 address with a port"},
		{func(s *Service) { s.Serving[0] = netip.MustParseAddr("fd00::1") }, "serving address fd00::1 is no ipv4 address"},
		{func(s *Service) { s.Serving[0] = netip.Addr{} }, "serving address invalid IP is no ipv4 address"},
	} {
		s := sample()
		c.wrong(&s)
		if err := s.Check(); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	two := sample()
	two.Affinity, two.Name.Protocol = -1, 9
	if err := two.Check(); err == nil || err.Error() != "unknown protocol 9\nnegative affinity -1ns" {
		t.Errorf("two mistakes are reported as: %v", err)
	}
}
