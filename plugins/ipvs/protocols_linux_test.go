// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// Every way to a Service, in PROTO and both families: which client is served, by which
// endpoint, and which is not.
const everyWay = `
-- services --
ns1/web PROTO
  cluster-ip    172.30.0.41:80
  cluster-ip    [fd00:172:30::41]:80
  load-balancer 198.51.100.1:80 from 198.18.0.0/15
  load-balancer [2001:db8:51::1]:80 from 2001:db8:ffff::/48
  node-port     30080
  endpoint      10.180.0.1:8080 here
  endpoint      [fd00:10:180::1]:8080 here
ns1/near PROTO
  cluster-ip  172.30.0.42:80
  cluster-ip  [fd00:172:30::42]:80
  external-ip 203.0.113.7:80 local
  external-ip [2001:db8:eeee::42]:80 local
  node-port   30081 local
  endpoint    10.180.0.2:8080 here
  endpoint    10.180.1.2:8080
  endpoint    [fd00:10:180::2]:8080 here
  endpoint    [fd00:10:180:1::2]:8080
ns1/far PROTO
  cluster-ip  172.30.0.43:80 local
  cluster-ip  [fd00:172:30::43]:80 local
  node-port   30082 local
  endpoint    10.180.1.3:8080
  endpoint    [fd00:10:180:1::3]:8080
ns1/nobody PROTO
  cluster-ip  172.30.0.44:80
  cluster-ip  [fd00:172:30::44]:80
-- packets --
10.180.0.9       > 172.30.0.41:80 PROTO         = 10.180.0.1:8080
fd00:10:180::9   > [fd00:172:30::41]:80 PROTO   = [fd00:10:180::1]:8080
192.0.2.7        > node:30080 PROTO             = 10.180.0.1:8080 masq
2001:db8::7      > node:30080 PROTO             = [fd00:10:180::1]:8080 masq
198.18.0.7       > 198.51.100.1:80 PROTO        = 10.180.0.1:8080 masq
2001:db8:ffff::7 > [2001:db8:51::1]:80 PROTO    = [fd00:10:180::1]:8080 masq
192.0.2.7        > 198.51.100.1:80 PROTO        = drop
2001:db8::7      > [2001:db8:51::1]:80 PROTO    = drop
192.0.2.7        > 203.0.113.7:80 PROTO         = 10.180.0.2:8080
2001:db8::7      > [2001:db8:eeee::42]:80 PROTO = [fd00:10:180::2]:8080
192.0.2.7        > node:30081 PROTO             = 10.180.0.2:8080
2001:db8::7      > node:30081 PROTO             = [fd00:10:180::2]:8080
192.0.2.7        > node:30082 PROTO             = drop
2001:db8::7      > node:30082 PROTO             = drop
10.180.0.9       > 172.30.0.43:80 PROTO         = drop
fd00:10:180::9   > [fd00:172:30::43]:80 PROTO   = drop
`

// A caller of a Service without an endpoint is refused. SCTP does not notice that.
const refused = `10.180.0.9       > 172.30.0.44:80 PROTO         = reject
fd00:10:180::9   > [fd00:172:30::44]:80 PROTO   = reject
`

func TestKernelIPVSEveryProtocol(t *testing.T) {
	s := newStand(t, "")
	for protocol, text := range map[string]string{"tcp": everyWay + refused, "udp": everyWay + refused, "sctp": everyWay} {
		served := s.serve(strings.ReplaceAll(text, "PROTO", protocol))
		s.traffic() // what was counted before is no Service's
		sent := uint64(0)
		for _, p := range served.Packets {
			if a := s.packet(p); a.Verdict == sdk.Forward && !p.Want.Unserved {
				sent++
			}
		}
		// The kernel sums up what its processors have counted each two seconds.
		s.within(time.Minute, "all that were served are counted", func() bool {
			had := s.traffic()
			return sent > 0 && had.Connections >= sent && had.BytesIn > 0 && had.BytesOut > 0
		})
	}
}

// traffic is what all Services have had, as the process says.
func (s *stand) traffic() (sum sdk.Traffic) {
	s.Helper()
	err := s.plugin.Count(s.Context(), func(t sdk.Traffic) error {
		sum.Connections += t.Connections
		sum.BytesIn += t.BytesIn
		sum.BytesOut += t.BytesOut
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return sum
}
