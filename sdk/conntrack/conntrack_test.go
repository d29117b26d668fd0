// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

var (
	addr     = netip.MustParseAddr
	addrPort = netip.MustParseAddrPort
)

func udp(name string, frontend string, cluster ...string) sdk.Service {
	svc := sdk.Service{Name: sdk.Name{Namespace: "ns", Service: name, Protocol: sdk.UDP, Family: sdk.IPv4}}
	svc.Frontends = []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: addrPort(frontend), Policy: sdk.Cluster}}
	for _, ep := range cluster {
		svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: addrPort(ep)})
	}
	return svc
}

func TestStale(t *testing.T) {
	local := udp("local", "10.0.0.2:53")
	local.Local = []sdk.Endpoint{{Addr: addrPort("10.1.0.2:53")}}
	terminating := udp("terminating", "10.0.0.3:53")
	terminating.Serving = []netip.Addr{addr("10.1.0.3")}
	port := udp("port", "0.0.0.0:30053", "10.1.0.4:53")
	port.Frontends[0].Kind = sdk.NodePort
	tcp := udp("tcp", "10.0.0.5:53", "10.1.0.5:53")
	tcp.Name.Protocol = sdk.TCP
	services := []sdk.Service{udp("dns", "10.0.0.1:53", "10.1.0.1:53"), udp("idle", "10.0.0.6:53"), udp("new", "10.0.0.7:53", "10.1.0.7:53"), udp("gone", "10.0.0.7:53"), local, terminating, port, tcp}
	takes := func(a netip.Addr) bool { return a == addr("192.0.2.10") }
	served := Serving(sdk.IPv4, services, takes)
	slices.Reverse(services) // their order does not matter
	reversed := Serving(sdk.IPv4, services, takes)

	for _, c := range []struct {
		why   string
		to    string
		reply string
		stale bool
	}{
		{"its endpoint serves", "10.0.0.1:53", "10.1.0.1:53", false},
		{"its endpoint is gone", "10.0.0.1:53", "10.1.0.9:53", true},
		{"its endpoint serves another port", "10.0.0.1:53", "10.1.0.1:54", true},
		{"it began when no endpoint served, and was never translated", "10.0.0.1:53", "10.0.0.1:53", true},
		{"no Service has that port of the address", "10.0.0.1:54", "10.1.0.9:53", false},
		{"an endpoint of the Local policy serves", "10.0.0.2:53", "10.1.0.2:53", false},
		{"a terminating endpoint still serves, whatever its port", "10.0.0.3:53", "10.1.0.3:54", false},
		{"no endpoint serves", "10.0.0.6:53", "10.1.0.9:53", true},
		{"no endpoint serves, and it was never translated", "10.0.0.6:53", "10.0.0.6:53", false},
		{"the frontend has a new owner that serves", "10.0.0.7:53", "10.1.0.7:53", false},
		{"the frontend has a new owner, and the flow is older", "10.0.0.7:53", "10.1.0.9:53", true},
		{"a node port with a serving endpoint", "192.0.2.10:30053", "10.1.0.4:53", false},
		{"a node port with a removed endpoint", "192.0.2.10:30053", "10.1.0.9:53", true},
		{"the port of a node port on another machine", "198.51.100.1:30053", "198.51.100.1:53", false},
		{"a TCP Service has no UDP flows", "10.0.0.5:53", "10.1.0.9:53", false},
		{"no Service has the address", "198.51.100.1:53", "198.51.100.1:53", false},
	} {
		f := Flow{To: addrPort(c.to), Reply: addrPort(c.reply)}
		if got := served.Stale(f); got != c.stale || got != reversed.Stale(f) {
			t.Errorf("%s: %s by %s is stale: %t, want %t in any order", c.why, c.to, c.reply, got, c.stale)
		}
	}
	if (Served{}).Stale(Flow{To: addrPort("10.0.0.1:53")}) {
		t.Error("a flow is stale without Services")
	}
	if !Serving(sdk.IPv6, services, nil).Empty() {
		t.Error("an IPv4 Service has IPv6 flows")
	}
}
