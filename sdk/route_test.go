// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// A world is one IP family's addresses for the tables below.
type world struct {
	family           Family
	vip              netip.AddrPort
	near, far        Endpoint // on this node, and not
	pod, node, other netip.Addr
	pods, ours       netip.Prefix // of this node; of all whom a range allows
}

func worlds() []world {
	return []world{{
		family: IPv4, vip: netip.MustParseAddrPort("172.30.0.41:80"),
		near: Endpoint{Addr: netip.MustParseAddrPort("10.180.0.1:8080"), OnNode: true},
		far:  Endpoint{Addr: netip.MustParseAddrPort("10.180.1.1:8080")},
		pod:  netip.MustParseAddr("10.180.0.9"), node: netip.MustParseAddr("192.0.2.10"), other: netip.MustParseAddr("198.18.0.7"),
		pods: netip.MustParsePrefix("10.180.0.0/24"), ours: netip.MustParsePrefix("0.0.0.0/0"),
	}, {
		family: IPv6, vip: netip.MustParseAddrPort("[fd00:172:30::41]:80"),
		near: Endpoint{Addr: netip.MustParseAddrPort("[fd00:10:180::1]:8080"), OnNode: true},
		far:  Endpoint{Addr: netip.MustParseAddrPort("[fd00:10:180:1::1]:8080")},
		pod:  netip.MustParseAddr("fd00:10:180::9"), node: netip.MustParseAddr("2001:db8::10"), other: netip.MustParseAddr("2001:db8:7::7"),
		pods: netip.MustParsePrefix("fd00:10:180::/64"), ours: netip.MustParsePrefix("::/0"),
	}}
}

func (w world) caller(from Origin) Caller {
	return Caller{Addr: map[Origin]netip.Addr{OnPod: w.pod, OnNode: w.node, Elsewhere: w.other}[from], From: from}
}

// each calls f for every way a frontend can be reached, in both families.
func each(f func(w world, kind Kind, policy Policy, from Origin, name string)) {
	for _, w := range worlds() {
		for _, kind := range []Kind{ClusterIP, NodePort, ExternalIP, LoadBalancer} {
			for _, policy := range []Policy{Cluster, Local} {
				for _, from := range []Origin{Elsewhere, OnPod, OnNode} {
					f(w, kind, policy, from, fmt.Sprintf("%s %s %s from %s", w.family, kind, policy, from))
				}
			}
		}
	}
}

// TestRouteVerdict is line 1 of the contract: three questions, in this order.
func TestRouteVerdict(t *testing.T) {
	each(func(w world, kind Kind, policy Policy, from Origin, name string) {
		caller := w.caller(from)
		others := netip.MustParsePrefix("203.0.113.0/24")
		if w.family == IPv6 {
			others = netip.MustParsePrefix("2001:db8:ffff::/48")
		}
		usesLocal := policy == Local && (kind == ClusterIP || from == Elsewhere)
		for _, sources := range [][]netip.Prefix{nil, {}, {w.ours}, {others, w.ours}, {others}} {
			for _, cluster := range [][]Endpoint{nil, {w.far}} {
				for _, local := range [][]Endpoint{nil, {w.near}} {
					svc := Service{Name: Name{Family: w.family}, Cluster: cluster, Local: local}
					f := Frontend{Kind: kind, Addr: w.vip, Policy: policy, Sources: sources}
					want := Forward
					switch {
					case len(sources) == 1 && sources[0] == others:
						want = Drop // also a pod, also the node, and also if no endpoint serves
					case cluster == nil:
						want = Reject // also if Local were not empty
					case usesLocal && local == nil:
						want = Drop
					}
					got := svc.Route(f, caller, Node{})
					if got.Verdict != want {
						t.Errorf("%s, ranges %v, cluster %v, local %v: %s, want %s", name, sources, cluster, local, got.Verdict, want)
					}
					if want != Forward && (got.Endpoints != nil || got.Masquerade) {
						t.Errorf("%s: a %s with %+v", name, want, got)
					}
				}
			}
		}
	})
}

// TestRouteListAndAddress is line 2 of the contract, written as the table that
// users read: whose list, and whose address the endpoint sees.
func TestRouteListAndAddress(t *testing.T) {
	rows := map[string]string{ // internal or external, policy, caller: what is reached
		"internal cluster pod":       "all",
		"internal cluster node":      "all, masqueraded if pods are known",
		"internal cluster elsewhere": "all, masqueraded if pods are known",
		"internal local pod":         "local",
		"internal local node":        "local, masqueraded if pods are known",
		"internal local elsewhere":   "local, masqueraded if pods are known",
		"external cluster pod":       "all, masqueraded",
		"external cluster node":      "all, masqueraded",
		"external cluster elsewhere": "all, masqueraded",
		"external local pod":         "all",
		"external local node":        "all, masqueraded",
		"external local elsewhere":   "local",
	}
	each(func(w world, kind Kind, policy Policy, from Origin, name string) {
		where := "external"
		if kind == ClusterIP {
			where = "internal"
		}
		row := rows[fmt.Sprintf("%s %s %s", where, policy, from)]
		list, terms, _ := strings.Cut(row, ", ")
		svc := Service{Name: Name{Family: w.family}, Cluster: []Endpoint{w.near, w.far}, Local: []Endpoint{w.near}}
		want := map[string][]Endpoint{"all": svc.Cluster, "local": svc.Local}[list]
		for _, pods := range []Pods{{}, {CIDRs: []netip.Prefix{w.pods}}, {Bridge: "br0"}, {InterfacePrefix: "veth"}} {
			for _, all := range []bool{false, true} {
				node := Node{Pods: pods, MasqueradeAll: all}
				masquerade := terms == "masqueraded" ||
					terms == "masqueraded if pods are known" && pods.Known(w.family) ||
					where == "internal" && all
				got := svc.Route(Frontend{Kind: kind, Addr: w.vip, Policy: policy}, w.caller(from), node)
				if !slices.Equal(got.Endpoints, want) || got.Masquerade != masquerade || got.Verdict != Forward {
					t.Errorf("%s, pods %+v, masquerade-all %t: %+v, want %s", name, pods, all, got, row)
				}
			}
		}
	})
}

// TestRouteKnowsPodsByFamily: pods known in one family only are unknown in the
// other.
func TestRouteKnowsPodsByFamily(t *testing.T) {
	for i, w := range worlds() {
		other := worlds()[1-i]
		node := Node{Pods: Pods{CIDRs: []netip.Prefix{other.pods}}}
		svc := Service{Name: Name{Family: w.family}, Cluster: []Endpoint{w.far}}
		if svc.Route(Frontend{Kind: ClusterIP, Addr: w.vip, Policy: Cluster}, w.caller(Elsewhere), node).Masquerade {
			t.Errorf("%s: masqueraded, although only pods of %s are known", w.family, other.family)
		}
	}
}

// TestRouteMasquerades: an endpoint that calls itself does not see itself.
func TestRouteMasquerades(t *testing.T) {
	for _, w := range worlds() {
		self := Caller{Addr: w.near.Addr.Addr(), From: OnPod}
		for _, c := range []struct {
			route Route
			ep    Endpoint
			from  Caller
			want  bool
		}{
			{Route{}, w.near, self, true},
			{Route{}, w.far, self, false},
			{Route{}, w.near, w.caller(OnPod), false},
			{Route{Masquerade: true}, w.far, self, true},
			{Route{Masquerade: true}, w.near, w.caller(Elsewhere), true},
		} {
			if got := c.route.Masquerades(c.ep, c.from); got != c.want {
				t.Errorf("%+v to %s from %v: %t", c.route, c.ep, c.from, got)
			}
		}
	}
}

func TestRouteWords(t *testing.T) {
	for v, want := range map[fmt.Stringer]string{
		Elsewhere: "elsewhere", OnPod: "pod", OnNode: "node",
		Drop: "drop", Reject: "reject", Forward: "forward",
	} {
		if v.String() != want {
			t.Errorf("got %q, want %q", v, want)
		}
	}
	if (Caller{}).From != Elsewhere || (Route{}).Verdict != Drop {
		t.Error("the zero values are not the quiet ones")
	}
}
