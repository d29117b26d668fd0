// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"strings"
	"testing"
)

// everyWay has a packet for each way to reach a Service in PROTO, with the expected endpoint or drop. The scenarios have
// these ways in TCP, and some of them in UDP and SCTP.
const everyWay = `
-- services --
ns1/web PROTO
  cluster-ip    172.30.0.41:80
  load-balancer 198.51.100.1:80 from 198.18.0.0/15
  node-port     30080
  endpoint      10.180.0.1:8080 here
ns1/near PROTO
  cluster-ip  172.30.0.42:80
  external-ip [2001:db8:eeee::42]:80 local
  node-port   30081 local
  endpoint    10.180.0.2:8080 here
  endpoint    10.180.1.2:8080
  endpoint    [fd00:10:180::2]:8080 here
  endpoint    [fd00:10:180:1::2]:8080
ns1/far PROTO
  cluster-ip  [fd00:172:30::43]:80 local
  node-port   30082 local
  endpoint    10.180.1.3:8080
  endpoint    [fd00:10:180:1::3]:8080
-- packets --
192.0.2.7        > node:30080 PROTO             = 10.180.0.1:8080 masq
198.18.0.7       > 198.51.100.1:80 PROTO        = 10.180.0.1:8080 masq
192.0.2.7        > 198.51.100.1:80 PROTO        = drop
2001:db8::7      > [2001:db8:eeee::42]:80 PROTO = [fd00:10:180::2]:8080
192.0.2.7        > node:30081 PROTO             = 10.180.0.2:8080
2001:db8::7      > node:30081 PROTO             = [fd00:10:180::2]:8080
2001:db8::7      > node:30082 PROTO             = drop
fd00:10:180::9   > [fd00:172:30::43]:80 PROTO   = drop
`

func TestKernelIPVSEveryProtocol(t *testing.T) {
	s := newFixture(t, "")
	for _, protocol := range []string{"udp", "sctp"} {
		served := s.serve(strings.ReplaceAll(everyWay, "PROTO", protocol))
		for _, p := range served.Packets {
			s.packet(p)
		}
	}
}
