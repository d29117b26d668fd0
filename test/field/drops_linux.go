// SPDX-License-Identifier: Apache-2.0

package field

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
)

const dropping = `Each Service drops some packets: gated has source ranges, away no local endpoint, none no endpoint at all.
-- node --
addresses     192.0.2.10 2001:db8::10
service-cidrs 172.30.0.0/16 fd00:172:30::/112
pods          10.180.0.0/24 fd00:10:180::/64
-- services --
ns1/gated:dns udp
  cluster-ip    172.30.0.41:53
  load-balancer 198.51.100.1:53 from 203.0.113.0/24
  cluster-ip    [fd00:172:30::41]:53
  load-balancer [2001:db8:51::1]:53 from 2001:db8:3::/64
  endpoint      10.180.0.1:8080 here
  endpoint      [fd00:10:180::1]:8080 here
ns1/away:dns udp
  cluster-ip    172.30.0.42:53 local
  load-balancer 198.51.100.2:53 local from 198.18.0.0/24
  cluster-ip    [fd00:172:30::42]:53 local
  load-balancer [2001:db8:51::2]:53 local from 2001:db8:ffff::/64
  endpoint      10.180.1.1:8080
  endpoint      [fd00:10:180:1::1]:8080
ns1/none:dns udp
  cluster-ip    172.30.0.43:53
  load-balancer 198.51.100.3:53 from 198.18.0.0/24
  cluster-ip    [fd00:172:30::43]:53
  load-balancer [2001:db8:51::3]:53 from 2001:db8:ffff::/64
-- packets --
10.180.0.9 > 172.30.0.41:53 udp = 10.180.0.1:8080
`

// A drop is a packet, and the reason for which a dataplane drops it. An empty reason means that it is forwarded.
type drop struct {
	reason   string
	from, to string
	foreign  bool // sent only if the dataplane refuses unused ports and addresses of ClusterIPs
}

var drops = []drop{
	{"", "10.180.0.9", "172.30.0.41:53", false},
	{sdk.DropSourceRange, "198.18.0.7", "198.51.100.1:53", false},
	{sdk.DropSourceRange, "198.18.1.7", "198.51.100.2:53", false},
	{sdk.DropSourceRange, "198.18.1.7", "198.51.100.3:53", false},
	{sdk.DropLocalWithoutEndpoint, "10.180.0.9", "172.30.0.42:53", false},
	{sdk.DropLocalWithoutEndpoint, "198.18.0.7", "198.51.100.2:53", false},
	{sdk.DropNoEndpoint, "10.180.0.9", "172.30.0.43:53", false},
	{sdk.DropNoEndpoint, "198.18.0.7", "198.51.100.3:53", false},
	{sdk.DropForeignPort, "198.18.0.7", "198.51.100.1:54", false}, // the default route would send it back to its source
	{sdk.DropForeignPort, "10.180.0.9", "172.30.0.41:54", true},
	{sdk.DropForeignPort, "10.180.0.9", "172.30.0.99:53", true},

	{"", "fd00:10:180::9", "[fd00:172:30::41]:53", false},
	{sdk.DropSourceRange, "2001:db8:ffff::7", "[2001:db8:51::1]:53", false},
	{sdk.DropSourceRange, "2001:db8:fffe::7", "[2001:db8:51::2]:53", false},
	{sdk.DropLocalWithoutEndpoint, "fd00:10:180::9", "[fd00:172:30::42]:53", false},
	{sdk.DropLocalWithoutEndpoint, "2001:db8:ffff::7", "[2001:db8:51::2]:53", false},
	{sdk.DropNoEndpoint, "fd00:10:180::9", "[fd00:172:30::43]:53", false},
	{sdk.DropNoEndpoint, "2001:db8:ffff::7", "[2001:db8:51::3]:53", false},
	{sdk.DropForeignPort, "fd00:10:180::9", "[fd00:172:30::41]:54", true},
	{sdk.DropForeignPort, "fd00:10:180::9", "[fd00:172:30::99]:53", true},
}

// A Dataplane is a dataplane that reports what it dropped.
type Dataplane interface {
	sdk.Dataplane
	sdk.Reporter
}

// Drops sends packets and checks that the dataplane's report counts each of them under the right reason. It repeats that
// after a restart of the dataplane, which must not reset the counters. If damage is not nil, it repeats that once more
// after damage, which must damage the rules that count no_endpoint. start starts the dataplane. If foreign is set, the
// dataplane refuses unused addresses and ports of ClusterIPs.
func Drops(t *testing.T, g *netns.Testbed, start func() Dataplane, damage func(), foreign bool) {
	t.Helper()
	d := start()
	n, s, undo := placeDropping(t, g, d)
	defer undo()
	want := map[string]uint64{sdk.DropSourceRange: 0, sdk.DropLocalWithoutEndpoint: 0, sdk.DropNoEndpoint: 0, sdk.DropForeignPort: 0}
	sendAll := func() {
		for i, p := range drops {
			if p.foreign && !foreign {
				continue
			}
			for range 1 + i%3 {
				n.datagram(p.from, p.to)
				want[p.reason]++
			}
			delete(want, "")
			eventually.Succeeds(t, fmt.Sprintf("%s > %s is counted", p.from, p.to), func() error {
				if got := counted(d); !maps.Equal(got, want) {
					return fmt.Errorf("the report counts %v; want %v", got, want)
				}
				return nil
			})
		}
	}
	sendAll()

	d = start()
	n.dataplane = d
	n.update(s.Update(1))
	if got := counted(d); !maps.Equal(got, want) {
		t.Errorf("after a restart, the report counts %v; want %v", got, want)
	}
	sendAll()

	if damage != nil {
		damage()
		want[sdk.DropNoEndpoint] = 0 // a rule that is written again counts from zero
		eventually.Succeeds(t, "the damage is repaired", func() error {
			if got, r := counted(d), d.Report(); r.Repaired == 0 || !maps.Equal(got, want) {
				return fmt.Errorf("%d repairs, the last %q; the report counts %v; want %v", r.Repaired, r.Repair, got, want)
			}
			return nil
		})
		sendAll()
	}
	if _, err := d.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the report has no counters after a cleanup", func() bool { return len(d.Report().Dropped) == 0 })
}

// placeDropping lets d serve the Services of dropping, on a node whose default route leads to a neighbour until undo.
func placeDropping(t *testing.T, g *netns.Testbed, d sdk.Dataplane) (n node, s sdktest.Scenario, undo func()) {
	t.Helper()
	s, err := sdktest.Parse("drops", []byte(dropping))
	if err != nil {
		t.Fatal(err)
	}
	s, left := g.Place(s)
	if len(left) > 0 {
		t.Fatal(left)
	}
	n = node{t, g, d}
	n.update(s.Update(1))
	n.datagram("198.18.0.7", "192.0.2.10:9") // creates the host and its neighbour entry
	_, undo = n.setDefaultRoute(netip.MustParseAddr("198.18.0.7"))
	n.update(s.Update(2))
	return n, s, undo
}

// counted returns the counters of a dataplane's report, for both IP families.
func counted(d Dataplane) map[string]uint64 {
	all := make(map[string]uint64)
	for _, n := range d.Report().Dropped {
		all[n.Reason] += n.Packets
	}
	return all
}

// datagram sends one datagram from a host.
func (d node) datagram(from, to string) {
	d.Helper()
	addr := netip.MustParseAddr(from)
	h, err := d.Host(addr)
	if err != nil {
		d.Fatal(err)
	}
	conn, err := h.Dial(context.Background(), "udp", addr, netip.MustParseAddrPort(to))
	if err == nil {
		_, err = conn.Write([]byte("who\n"))
		conn.Close()
	}
	if err != nil {
		d.Fatal(err)
	}
}

// setDefaultRoute sets the node's IPv4 default route to a neighbour, and returns the neighbour's device. undo restores
// the route.
func (d node) setDefaultRoute(neighbour netip.Addr) (device string, undo func()) {
	d.Helper()
	out, err := d.run("ip -4 neighbour show " + neighbour.String()) // ADDRESS dev DEVICE lladdr MAC
	words := strings.Fields(out)
	if err != nil || len(words) < 5 {
		d.Fatal(out, err)
	}
	before, err := d.run("ip -4 route show default")
	if err != nil {
		d.Fatal(before, err)
	}
	const gateway = "169.254.7.7"
	device = words[2]
	mac := words[4]
	d.must("ip neighbour replace "+gateway+" lladdr "+mac+" dev "+device+" nud permanent", "ip route replace default via "+gateway+" dev "+device+" onlink")
	return device, func() { d.must("ip route replace " + strings.TrimSpace(before)) }
}
