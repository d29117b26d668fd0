// SPDX-License-Identifier: Apache-2.0

package track

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestMatch: Match returns the frontend of the Service that owns an address, or why there is none.
func TestMatch(t *testing.T) {
	tracker, _ := newTracker()
	tracker.Configure(Facts{NodeName: "n1", OwnAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")},
		NodePorts: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/32"), netip.MustParsePrefix("127.0.0.0/8")}})
	tracker.SetService(newService("web", "172.30.0.1", created(2), nodePort(30080), balancer("203.0.113.1")))
	tracker.SetService(newService("old", "172.30.0.2", created(1), externalIPs("203.0.113.9", "172.30.0.1")))
	tracker.SetService(newService("new", "172.30.0.3", created(3), externalIPs("203.0.113.9")))
	own := func(addr netip.Addr) bool {
		return addr.IsLoopback() || strings.HasPrefix(addr.String(), "192.0.2.1")
	}
	for _, tt := range []struct {
		to       string
		protocol sdk.Protocol
		want     string
	}{
		{"172.30.0.1:80", sdk.TCP, "web cluster-ip 172.30.0.1:80"},
		{"203.0.113.1:80", sdk.TCP, "web load-balancer 203.0.113.1:80"},
		{"203.0.113.9:80", sdk.TCP, "old external-ip 203.0.113.9:80"},
		{"192.0.2.10:30080", sdk.TCP, "web node-port *:30080"},
		{"192.0.2.10:30080", sdk.UDP, "no Service is reached at 192.0.2.10:30080/udp"},
		{"192.0.2.11:30080", sdk.TCP, "30080/tcp is the node port of ns1/web, and 192.0.2.11 is an address of this node that accepts no node ports, because of nodePortAddresses"},
		{"192.0.2.20:30080", sdk.TCP, "30080/tcp is the node port of ns1/web, and 192.0.2.20 is not an address of this node"},
		{"127.0.0.1:30080", sdk.TCP, "depends: 30080/tcp is the node port of ns1/web, and 127.0.0.1 is a loopback address, which accepts node ports only with the dataplane's option localhostNodePorts"},
		{"172.30.0.1:81", sdk.TCP, "172.30.0.1 is an address of ns1/web, which is not reached at port 81/tcp"},
		{"172.30.0.9:80", sdk.TCP, "no Service is reached at 172.30.0.9:80/tcp"},
	} {
		m := tracker.Match(netip.MustParseAddrPort(tt.to), tt.protocol, own)
		got := m.Why
		if m.Depends {
			got = "depends: " + got
		}
		if m.Why == "" {
			got = m.Service.Name.Service + " " + m.Frontend.String()
		}
		if got != tt.want {
			t.Errorf("%s/%s: %q, want %q", tt.to, tt.protocol, got, tt.want)
		}
	}
}
