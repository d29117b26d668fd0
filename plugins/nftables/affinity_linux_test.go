// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"slices"
	"testing"
)

const bothPolicies = `Affinity over frontends of both policies.
-- node --
addresses 192.0.2.10 2001:db8::10
pods      10.180.0.0/24
-- services --
ns1/web:http tcp
  cluster-ip    172.30.0.41:80
  load-balancer 198.51.100.1:80 local
  affinity      3h
  endpoint      10.180.0.1:8080 here
  endpoint      10.180.0.2:8080 here
  endpoint      10.180.1.1:8080
  endpoint      10.180.1.2:8080
-- packets --
10.180.0.9 > 172.30.0.41:80  = 10.180.0.1:8080 10.180.0.2:8080 10.180.1.1:8080 10.180.1.2:8080
10.180.0.9 > 198.51.100.1:80 = 10.180.0.1:8080 10.180.0.2:8080 10.180.1.1:8080 10.180.1.2:8080
198.18.0.7 > 198.51.100.1:80 = 10.180.0.1:8080 10.180.0.2:8080
198.18.0.7 > 172.30.0.41:80  = 10.180.0.1:8080 10.180.0.2:8080 10.180.1.1:8080 10.180.1.2:8080 masq
192.0.2.7  > 172.30.0.41:80  = 10.180.0.1:8080 10.180.0.2:8080 10.180.1.1:8080 10.180.1.2:8080 masq
192.0.2.7  > 198.51.100.1:80 = 10.180.0.1:8080 10.180.0.2:8080
192.0.2.7  > 172.30.0.41:80  = 10.180.0.1:8080 10.180.0.2:8080 10.180.1.1:8080 10.180.1.2:8080 masq
`

const inIPv6 = `The same client by two frontends.
-- node --
addresses 192.0.2.10 2001:db8::10
pods      fd00:10:180::/64
-- services --
ns1/web:http tcp
  cluster-ip [fd00:172:30::41]:80
  node-port  30080 local
  affinity   3h
  endpoint   [fd00:10:180::1]:8080 here
  endpoint   [fd00:10:180:1::1]:8080
  endpoint   [fd00:10:180:1::2]:8080
-- packets --
fd00:10:180::9 > [fd00:172:30::41]:80   = [fd00:10:180::1]:8080 [fd00:10:180:1::1]:8080 [fd00:10:180:1::2]:8080
fd00:10:180::9 > [2001:db8::10]:30080   = [fd00:10:180::1]:8080 [fd00:10:180:1::1]:8080 [fd00:10:180:1::2]:8080
fd00:10:180::9 > [fd00:172:30::41]:80   = [fd00:10:180::1]:8080 [fd00:10:180:1::1]:8080 [fd00:10:180:1::2]:8080
`

// A client keeps its endpoint over frontends of both policies, wherever both lists have it. One
// that keeps an endpoint elsewhere gets one of this node where only those may serve it, and
// keeps both.
func TestKernelAffinityOfBothPolicies(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s := k.parsed(g, bothPolicies)
		p, stage := k.active(g, s)
		var at []netip.AddrPort
		for _, p := range s.Packets {
			at = append(at, k.keeps(stage, p))
			may := slices.ContainsFunc(p.Want.Endpoints, func(ep netip.AddrPort) bool { return ep == at[len(at)-1] })
			if !may {
				k.Errorf("%s reached %s", p.Text, at[len(at)-1])
			}
		}
		p.die()
		six := k.parsed(g, inIPv6)
		_, stage = k.active(g, six)
		for _, p := range six.Packets {
			if now := k.keeps(stage, p); now != k.keeps(stage, six.Packets[0]) {
				k.Errorf("%s reached %s", p.Text, now)
			}
		}
		for _, same := range [][2]int{{0, 1}, {2, 3}, {4, 6}} {
			if at[same[0]] != at[same[1]] {
				k.Errorf("%q reached %s, and %q %s", s.Packets[same[0]].Text, at[same[0]], s.Packets[same[1]].Text, at[same[1]])
			}
		}
		k.lists()
	})
}
