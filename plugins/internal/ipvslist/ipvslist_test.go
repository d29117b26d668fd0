// SPDX-License-Identifier: Apache-2.0

package ipvslist

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// shown is a list of a kernel 6.1 with both families, a virtual server by mark, one without destinations, and flags.
const shown = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  AC1E0029:0050 rr persistent 10800 FFFFFFFF
  -> 0AB40001:1F90      Masq    1      3          14        
  -> 0AB40101:1F90      Masq    0      0          1         
UDP  AC1E0029:0035 rr ops 
SCTP [fd00:0172:0030:0000:0000:0000:0000:0041]:0050 wlc 
  -> [fd00:0010:0180:0001:0000:0000:0000:0001]:1F90      Masq    1      0          0         
FWM  00004041 rr 
  -> 0AB40001:1F90      Masq    1      7          0         
FWM  00000009 sh 
ESP  0AB40001:0000 rr 
  -> 0AB40002:0000      Masq    1      7          0         
`

func TestRead(t *testing.T) {
	got, err := Read(strings.NewReader(shown))
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort
	type dests = map[netip.AddrPort]Load
	want := []struct {
		Server
		family sdk.Family
	}{
		{Server{Protocol: sdk.TCP, Addr: at("172.30.0.41:80"), Scheduler: "rr", Dests: dests{at("10.180.0.1:8080"): {1, 3, 14}, at("10.180.1.1:8080"): {0, 0, 1}}}, sdk.IPv4},
		{Server{Protocol: sdk.UDP, Addr: at("172.30.0.41:53"), Scheduler: "rr"}, sdk.IPv4},
		{Server{Protocol: sdk.SCTP, Addr: at("[fd00:172:30::41]:80"), Scheduler: "wlc", Dests: dests{at("[fd00:10:180:1::1]:8080"): {1, 0, 0}}}, sdk.IPv6},
		{Server{Mark: 0x4041, Scheduler: "rr", Dests: dests{at("10.180.0.1:8080"): {1, 7, 0}}}, sdk.IPv4},
		{Server{Mark: 9, Scheduler: "sh"}, 0},
	}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i, s := range got {
		w := want[i]
		if s.Protocol != w.Protocol || s.Addr != w.Addr || s.Mark != w.Mark || s.Scheduler != w.Scheduler || s.Family() != w.family || !maps.Equal(s.Dests, w.Dests) {
			t.Errorf("got %+v of %s, want %+v", s, s.Family(), w)
		}
	}
	for _, bad := range []string{"TCP  AC1E:0050 rr", "TCP  AC1E0029 rr", "UDP AC1E0029:XX rr", "FWM xyz rr", "TCP  AC1E0029:0050 rr\n  -> 0AB40001:1F90 Masq 1"} {
		if got, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}
