// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"net"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/trace"
)

// The kernel's own lists have what this process listens at, and no longer.
func TestSocketAt(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0"} {
		l, err := net.Listen(map[bool]string{true: "tcp4", false: "tcp6"}[at[0] != '['], at)
		if err != nil {
			t.Log(err) // no IPv6
			continue
		}
		conn, err := net.ListenPacket(map[bool]string{true: "udp4", false: "udp6"}[at[0] != '['], at)
		if err != nil {
			t.Fatal(err)
		}
		for protocol, addr := range map[string]string{"tcp": l.Addr().String(), "udp": conn.LocalAddr().String()} {
			to := netip.MustParseAddrPort(addr)
			wildcard := to.Addr().IsUnspecified()
			if wildcard {
				to = netip.AddrPortFrom(map[bool]netip.Addr{true: netip.MustParseAddr("127.0.0.1"), false: netip.IPv6Loopback()}[to.Addr().Is4()], to.Port())
			}
			if has, err := hasSocket(trace.Packet{Protocol: protocol, To: to}, true); err != nil || !has {
				t.Errorf("%s %s: %v, %v", protocol, addr, has, err)
			}
			if has, err := socketAt(protocol, to, false); err != nil || has == wildcard {
				t.Errorf("%s %s, by its address alone: %v, %v", protocol, addr, has, err)
			}
		}
		l.Close()
		conn.Close()
	}
	if _, err := socketAt("sctp", netip.MustParseAddrPort("127.0.0.1:80"), true); err == nil {
		t.Error("sockets of SCTP are seen")
	}
}
