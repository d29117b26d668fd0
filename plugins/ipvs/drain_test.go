// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// All that a kernel 6.1 has shown: both families, a virtual service of a mark, one
// without destinations, and flags.
const shownTable = `IP Virtual Server version 1.2.1 (size=4096)
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
`

func TestReadTable(t *testing.T) {
	got, err := readTable(strings.NewReader(shownTable))
	if err != nil {
		t.Fatal(err)
	}
	tcp := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.MustParseAddrPort("172.30.0.41:80")}
	udp := serviceKey{family: sdk.IPv4, protocol: sdk.UDP, addr: netip.MustParseAddrPort("172.30.0.41:53")}
	sctp := serviceKey{family: sdk.IPv6, protocol: sdk.SCTP, addr: netip.MustParseAddrPort("[fd00:172:30::41]:80")}
	want := table{
		tcp:                              {netip.MustParseAddrPort("10.180.0.1:8080"): {1, 3, 14}, netip.MustParseAddrPort("10.180.1.1:8080"): {0, 0, 1}},
		udp:                              {},
		sctp:                             {netip.MustParseAddrPort("[fd00:10:180:1::1]:8080"): {1, 0, 0}},
		{family: sdk.IPv4, mark: 0x4041}: {netip.MustParseAddrPort("10.180.0.1:8080"): {1, 7, 0}},
	}
	if !maps.EqualFunc(got, want, maps.Equal[map[netip.AddrPort]load, map[netip.AddrPort]load]) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	for _, bad := range []string{"TCP  AC1E:0050 rr", "TCP  AC1E0029 rr", "UDP AC1E0029:XX rr", "TCP  AC1E0029:0050 rr\n  -> 0AB40001:1F90 Masq 1"} {
		if got, err := readTable(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

// Table has what Loads has, but for marks without destinations, as the kernel's own does.
func (f *fake) Table() (table, error) {
	f.mu.Lock()
	services := slices.Collect(maps.Keys(f.services))
	f.mu.Unlock()
	all := make(table)
	for _, at := range services {
		if at.mark == 0 || len(f.services[at].dests) > 0 {
			all[at], _, _ = f.Loads(at)
		}
	}
	return all, nil
}
