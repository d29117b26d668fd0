// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/traffic"
)

// The names of the two nodes. All proxies run on the first.
const (
	here  = "node-a"
	there = "node-b"
)

// A place calls or answers: a name with addresses, IPv4 first.
type place struct {
	name  string
	node  string // where it is; empty: none
	addrs [2]netip.Addr
}

func both(name, node, v4, v6 string) place {
	return place{name, node, [2]netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}}
}

// places are the places of every world. The node's device to each has its name.
var places = []place{
	both("client", "", "198.18.0.7", "2001:db8:c::7"),
	both("node", here, "192.0.2.10", "2001:db8::10"),
	both("other", there, "192.0.2.11", "2001:db8::11"),
	both("near0", here, "10.244.1.2", "fd00:10:244:1::2"),
	both("near1", here, "10.244.1.3", "fd00:10:244:1::3"),
	both("far0", there, "10.244.2.2", "fd00:10:244:2::2"),
	both("far1", there, "10.244.2.3", "fd00:10:244:2::3"),
}

// secondAddrs is another pair of addresses of the node, which its Node object does not name.
var secondAddrs = [2]netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:2::10")}

// balancerAddrs are addresses of load balancers that the node has too, as in some clouds.
var balancerAddrs = [][2]netip.Addr{
	{netip.MustParseAddr("198.51.100.201"), netip.MustParseAddr("2001:db8:e::201")},
	{netip.MustParseAddr("198.51.100.202"), netip.MustParseAddr("2001:db8:e::202")},
	{netip.MustParseAddr("198.51.100.203"), netip.MustParseAddr("2001:db8:e::203")},
	{netip.MustParseAddr("198.51.100.204"), netip.MustParseAddr("2001:db8:e::204")},
}

// answering are the ports on which every place answers.
var answering = []uint16{8080, 8081, 9090}

func at(name string) place {
	i := slices.IndexFunc(places, func(p place) bool { return p.name == name })
	return places[i]
}

// A world is a node and the hosts around it.
type world struct {
	testbed *netns.Testbed
	hosts   map[string]*netns.Host // by the place's name
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{testbed: traffic.Testbed(t, netns.Apart), hosts: make(map[string]*netns.Host)}
	for _, p := range places {
		for _, a := range p.addrs {
			if err := w.settle(p.name, a); err != nil {
				t.Fatal(fmt.Errorf("%s: %w", p.name, err))
			}
		}
		if p.name != "client" {
			w.answer(t, p)
		}
	}
	for _, a := range slices.Concat(secondAddrs[:], balancerAddrs[0][:], balancerAddrs[1][:], balancerAddrs[2][:], balancerAddrs[3][:]) {
		if err := w.testbed.Own(a); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) settle(name string, a netip.Addr) (err error) {
	if name == "node" {
		w.hosts[name] = w.testbed.Node()
		return w.testbed.Own(a)
	}
	w.hosts[name], err = w.testbed.Behind(name, a)
	return err
}

// answer lets p answer on all ports, until the test ends.
func (w *world) answer(t testing.TB, p place) {
	t.Helper()
	for _, a := range p.addrs {
		for _, number := range answering {
			for _, protocol := range []sdk.Protocol{sdk.TCP, sdk.UDP} {
				end, err := netns.Answer(t.Context(), w.hosts[p.name], protocol, netip.AddrPortFrom(a, number))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { end.Close() })
			}
		}
	}
}
