// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// Whatever another program has put in a packet's way: what is said of it is what becomes of it. Without
// that, TestKernelIPVSConforms holds each packet of each scenario to it.
func TestKernelIPVSTellsTheTruth(t *testing.T) {
	s := newStand(t, "")
	served := s.serve(loadBalancer + "192.0.2.7 > node:30080 = 10.180.1.1:8080 masq\n192.0.2.7 > 198.51.100.1:80 = 10.180.1.1:8080 masq\n")
	for _, fault := range [][2]string{
		{"true", "true"},
		{"iptables-legacy -I INPUT -s 192.0.2.7 -j DROP", "iptables-legacy -D INPUT -s 192.0.2.7 -j DROP"},
		{"iptables-legacy -I OUTPUT -d 10.180.1.1 -j DROP", "iptables-legacy -D OUTPUT -d 10.180.1.1 -j DROP"},
		{"ip route add unreachable 10.180.1.1 metric 1", "ip route del unreachable 10.180.1.1 metric 1"},
		{"iptables-legacy -t nat -I POSTROUTING -d 10.180.1.1 -j ACCEPT", "iptables-legacy -t nat -D POSTROUTING -d 10.180.1.1 -j ACCEPT"},
		{"ipvsadm -e -t 198.51.100.1:80 -r 10.180.1.1:8080 -m -w 0", "ipvsadm -e -t 198.51.100.1:80 -r 10.180.1.1:8080 -m -w 1"},
	} {
		run(t, "sh", "-ec", fault[0])
		for _, p := range served.Packets {
			s.tells(fault[0], p)
		}
		run(t, "sh", "-ec", fault[1])
	}
}

// tells sends a packet, and holds what becomes of it against what is said.
func (s *stand) tells(fault string, p sdktest.Packet) {
	s.Helper()
	said, err := s.plugin.Trace(s.Context(), sdk.Packet{
		Protocol: p.Protocol, From: netip.AddrPortFrom(p.From.Addr, 0), To: p.To, Origin: p.From.From, In: p.Interface,
	})
	if err != nil || said.CannotTell != "" {
		s.Fatalf("%s: %s: %+v, %v", fault, p.Text, said, err)
	}
	refused := false
	for _, w := range said.Ways {
		refused = refused || w.Verdict != sdk.Forward
		if w.Verdict != sdk.Forward {
			p.Want = sdktest.Outcome{Verdict: w.Verdict} // no answer is waited for
		}
	}
	a, err := s.stage.Send(s.Context(), p)
	if err != nil || a.Verdict != sdk.Forward {
		if !refused {
			s.Errorf("%s: %s: %s, %v, and it is said %+v", fault, p.Text, a, err, said)
		}
		return
	}
	for _, w := range said.Ways {
		if w.Verdict == sdk.Forward && w.To == a.Endpoint && (p.From.From == sdk.OnNode || w.Masquerade == (a.Client != p.From.Addr)) {
			return
		}
	}
	s.Errorf("%s: %s: %s from %s, and it is said %+v", fault, p.Text, a, a.Client, said)
}
