// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
)

// An address is one that an interface of this machine has.
type address struct {
	prefix  netip.Prefix // the address and its range
	foreign bool         // a dataplane put it there, so it takes no node ports
}

// A ground is the node as connections see it: what the host says of it, and the
// addresses it has now. It is never changed, only replaced.
type ground struct {
	node      sdk.Node
	addresses []address
	own       map[netip.Addr]bool // those of the machine, and those of the node
	nodePorts []netip.Addr        // those that take node ports, sorted
}

func newGround(node sdk.Node, addresses []address) *ground {
	g := &ground{node: node, addresses: addresses, own: make(map[netip.Addr]bool)}
	taking := make(map[netip.Addr]bool)
	for _, a := range addresses {
		addr := a.prefix.Addr()
		g.own[addr] = true
		if !a.foreign && !duty.OnLink(addr) && node.TakesNodePorts(addr) {
			taking[addr] = true
		}
	}
	for _, addr := range node.Addrs {
		g.own[addr] = true
		if node.TakesNodePorts(addr) && loopback(addresses, addr) {
			taking[addr] = true
		}
	}
	g.nodePorts = slices.SortedFunc(maps.Keys(taking), netip.Addr.Compare)
	return g
}

// loopback reports whether addr can be bound because a loopback interface has
// all of its range, as Linux has with 127.0.0.0/8.
func loopback(addresses []address, addr netip.Addr) bool {
	return addr.IsLoopback() && slices.ContainsFunc(addresses, func(a address) bool { return a.prefix.Contains(addr) })
}

// setGround makes g the node, for the relay too.
func (d *Dataplane) setGround(g *ground) {
	d.ground = g
	d.relay.SetNode(g.node, g.own)
}
