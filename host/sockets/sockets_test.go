// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

func TestCollide(t *testing.T) {
	ranges := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("::/0")}
	for _, tc := range []struct {
		name         string
		port, socket string
		protocol     sdk.Protocol // of the socket
		collide      bool
	}{
		{"all addresses", "0.0.0.0:30080", "0.0.0.0:30080", sdk.TCP, true},
		{"all of both families", "0.0.0.0:30080", "[::]:30080", sdk.TCP, true},
		{"of the other family", "[::]:30080", "0.0.0.0:30080", sdk.TCP, false},
		{"another port", "0.0.0.0:30080", "0.0.0.0:30081", sdk.TCP, false},
		{"another protocol", "0.0.0.0:30080", "0.0.0.0:30080", sdk.UDP, false},
		{"an address that takes node ports", "0.0.0.0:30080", "192.0.2.10:30080", sdk.TCP, true},
		{"one that does not", "0.0.0.0:30080", "198.51.100.1:30080", sdk.TCP, false},
		{"loopback", "[::]:30080", "[::1]:30080", sdk.TCP, false},
		{"an external address of the node", "192.0.2.10:80", "192.0.2.10:80", sdk.TCP, true},
		{"by a socket of all", "192.0.2.10:80", "0.0.0.0:80", sdk.TCP, true},
		{"another address of the node", "192.0.2.10:80", "192.0.2.11:80", sdk.TCP, false},
	} {
		ports := []track.HostPort{{Addr: netip.MustParseAddrPort(tc.port), Protocol: sdk.TCP}}
		sockets := []Socket{{Addr: netip.MustParseAddrPort(tc.socket), Protocol: tc.protocol}}
		if got := len(Collide(ports, sockets, ranges)) == 1; got != tc.collide {
			t.Errorf("%s: %s and %s collide: %t", tc.name, tc.port, tc.socket, got)
		}
	}
}
