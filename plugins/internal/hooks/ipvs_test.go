// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// What virtual services do that a dataplane here does not make, and where they are not understood.
func TestVirtualServices(t *testing.T) {
	const servers = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  C000020A:0050 wrr
  -> 0A000001:1F90      Masq    1      0          0
  -> 0A000002:1F90      Masq    3      0          0
  -> 0A000003:1F90      Masq    0      0          0
TCP  C000020A:0051 dh
  -> 0A000001:1F90      Masq    1      0          0
  -> 0A000003:1F90      Masq    0      0          0
TCP  C000020A:0052 rr
  -> 0A000001:1F90      Route   1      0          0
UDP  C000020A:0053 rr ops
TCP  C000020A:0015 rr
TCP  C000020A:0054 rr
  -> 0A000004:1F90      Masq    1      0          0
TCP  [fd00:0000:0000:0000:0000:0000:0000:0001]:0050 rr
  -> [fd00:0000:0000:0000:0000:0000:0000:0002]:1F90      Masq    1      0          0
TCP  C633640A:0000 rr persistent 300 FFFFFFFF
`
	local := func(a netip.Addr) bool { return a == node || a.String() == "198.51.100.10" || a.String() == "fd00::1" }
	mangle := iptables.ID{Table: "mangle", Chain: "OUTPUT"}
	g := Given{Servers: servers, Local: local, Marked: map[uint32]string{6: "eth6"}, Tables: iptables.Tables{
		mangle: {"-d 10.0.0.2/32 -j MARK --set-xmark 0x5/0xffffffff", "-d 10.0.0.4/32 -j MARK --set-xmark 0x6/0xffffffff"},
	}}
	for _, tt := range []struct {
		protocol sdk.Protocol
		from, to string
		want     string
	}{
		{sdk.TCP, "198.18.0.7", "192.0.2.10:80", "[{forward 10.0.0.1:8080 0.25} {forward 10.0.0.2:8080 0.75}]"},
		{sdk.TCP, "198.18.0.7", "192.0.2.10:81", "[{forward 10.0.0.1:8080 0.5} {reject 192.0.2.10:81 0.5}]"},
		{sdk.TCP, "198.18.0.7", "192.0.2.10:82", "cannot tell"},
		{sdk.UDP, "198.18.0.7", "192.0.2.10:83", "cannot tell"},
		{sdk.TCP, "198.18.0.7", "192.0.2.10:84", "cannot tell"}, // it leaves elsewhere, by its mark
		{sdk.TCP, "198.18.0.7", "192.0.2.10:21", "[{reject 192.0.2.10:21 1}]"},
		{sdk.TCP, "198.18.0.7", "192.0.2.10:2100", "[{forward 192.0.2.10:2100 1}]"},
		{sdk.TCP, "fd00::7", "[fd00::1]:80", "[{forward [fd00::2]:8080 1}]"},
		{sdk.TCP, "198.18.0.7", "198.51.100.10:9", "cannot tell"},
	} {
		traced, err := g.Trace(sdk.Packet{Protocol: tt.protocol, From: netip.AddrPortFrom(netip.MustParseAddr(tt.from), 0), To: netip.MustParseAddrPort(tt.to)})
		if err != nil {
			t.Fatal(err)
		}
		if got := ends(traced); got != tt.want {
			t.Errorf("%s to %s: %s, want %s", tt.from, tt.to, got, tt.want)
		}
	}
}

func ends(t sdk.Traced) string {
	if t.CannotTell != "" {
		return "cannot tell"
	}
	type end struct {
		Verdict sdk.Verdict
		To      netip.AddrPort
		Share   float64
	}
	var all []end
	for _, w := range t.Ways {
		all = append(all, end{w.Verdict, w.To, w.Share})
	}
	return fmt.Sprint(all)
}
