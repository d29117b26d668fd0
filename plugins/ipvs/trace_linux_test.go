// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestKernelIPVSTrace checks that a trace ends where IPVS takes the packet, by destination or by mark, or before that
// at a rule of another program that drops it.
func TestKernelIPVSTrace(t *testing.T) {
	s := newFixture(t, "")
	s.serve(`
-- services --
ns1/web:http tcp
  cluster-ip    172.30.0.41:80
  cluster-ip    [fd00:172:30::41]:80
  node-port     30080
  external-ip   198.51.100.1:80 local
  endpoint      10.180.1.1:8080
  endpoint      [fd00:10:180:1::1]:8080
-- packets --
10.180.0.9 > 172.30.0.41:80 = 10.180.1.1:8080
`)
	const outside, outside6, node = "198.18.0.7", "2001:db8:7::7", "192.0.2.10"
	for _, from := range []string{outside, outside6} {
		if _, err := s.node.Behind("eth7", netip.MustParseAddr(from)); err != nil {
			t.Fatal(err)
		}
	}
	ways := func(from, to string) string {
		t.Helper()
		p := sdk.Packet{Protocol: sdk.TCP, From: netip.AddrPortFrom(netip.MustParseAddr(from), 0), To: netip.MustParseAddrPort(to), In: "eth7"}
		if from == node {
			p.Origin, p.In = sdk.OnNode, ""
		}
		said, err := s.plugin.Trace(t.Context(), p)
		if err != nil || len(said.Ways) != 1 {
			t.Fatalf("%s to %s: %+v, %v", from, to, said, err)
		}
		return said.Ways[0].Verdict.String() + " " + said.Ways[0].Then
	}
	for _, tt := range []struct{ from, to, want string }{
		{outside, "172.30.0.41:80", "forward IPVS, virtual service tcp 172.30.0.41:80, rr"},
		{outside6, "[fd00:172:30::41]:80", "forward IPVS, virtual service tcp [fd00:172:30::41]:80, rr"},
		{outside, node + ":30080", "forward IPVS, virtual service tcp " + node + ":30080, rr"},
		{node, "172.30.0.41:80", "forward IPVS, virtual service tcp 172.30.0.41:80, rr"},
		{node, "198.51.100.1:80", "forward IPVS, virtual service of mark 0x"},
		{outside, "172.30.0.41:81", "reject "},
		{outside, node + ":22", "forward "},
	} {
		if got := ways(tt.from, tt.to); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s to %s: %s, want %s", tt.from, tt.to, got, tt.want)
		}
	}
	run(t, "iptables-legacy", "-I", "INPUT", "-s", outside, "-j", "DROP")
	if got := ways(outside, "172.30.0.41:80"); got != "drop " {
		t.Errorf("a packet that a foreign rule drops: %s", got)
	}
	run(t, "iptables-legacy", "-D", "INPUT", "-s", outside, "-j", "DROP")
}
