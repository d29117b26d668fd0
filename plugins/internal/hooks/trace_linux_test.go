// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/ipvslist"
	"github.com/pointsman/pointsman/plugins/internal/oracle"
)

// TestVirtualServer finds the virtual server of a packet in the kernel's list.
func TestVirtualServer(t *testing.T) {
	const shown = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:0050 rr
  -> 0A000001:1F90      Masq    1      0          0
UDP  0A600001:0000 sh
TCP  [fd00:0172:0000:0000:0000:0000:0000:0001]:0050 wlc persistent 600
FWM  6E000001 rr persistent 600 FFFFFFFF
`
	list, err := ipvslist.Read(strings.NewReader(shown))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		protocol, to string
		mark         uint32
		want         string
	}{
		{"tcp", "10.96.0.1:80", 0, "tcp 10.96.0.1:80, rr"},
		{"tcp", "10.96.0.1:81", 0, ""},
		{"udp", "10.96.0.1:53", 0, "udp 10.96.0.1:53, sh"},
		{"tcp", "[fd00:172::1]:80", 0, "tcp [fd00:172::1]:80, wlc"},
		{"tcp", "192.0.2.10:30080", 0x6e000001, "of mark 0x6e000001, rr"},
		{"tcp", "10.96.0.1:80", 0x6e000001, "of mark 0x6e000001, rr"},
		{"tcp", "10.96.0.1:80", 0x4000, "tcp 10.96.0.1:80, rr"},
		{"tcp", "10.0.0.1:8080", 0, ""},
	} {
		p := oracle.Packet{Protocol: tt.protocol, To: netip.MustParseAddrPort(tt.to), Mark: tt.mark}
		if got := virtualServer(list, p); got != tt.want {
			t.Errorf("%s: %q, want %q", p, got, tt.want)
		}
	}
}
