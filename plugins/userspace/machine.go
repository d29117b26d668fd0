// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
)

// An address is one that an interface of this machine has.
type address struct {
	prefix  netip.Prefix // the address and its range, or a prefix of which the machine has every address
	whole   bool         // every address of prefix is the machine's
	foreign bool         // a dataplane put it there, so it takes no node ports
}

// A machine is the node as connections see it: what the host says of it, and the
// addresses it has now. It is never changed, only replaced.
type machine struct {
	node      sdk.Node
	addresses []address
	own       map[netip.Addr]bool // those of the machine, and those of the node
	nodePorts []netip.Addr        // those that take node ports, sorted
	takes     []netip.Prefix      // the same, and ranges of which every address takes them
}

func newMachine(node sdk.Node, addresses []address) *machine {
	m := &machine{node: narrowed(node), addresses: addresses, own: make(map[netip.Addr]bool)}
	taking := make(map[netip.Addr]bool)
	for _, a := range addresses {
		addr := a.prefix.Addr()
		if a.whole && !a.prefix.IsSingleIP() {
			if !a.foreign && !addr.IsLoopback() {
				m.takes = append(m.takes, frame.NodePortPrefixes(node, a.prefix)...)
			}
			continue
		}
		m.own[addr] = true
		if !a.foreign && !frame.OnLink(addr) && node.TakesNodePorts(addr) {
			taking[addr] = true
		}
	}
	for _, addr := range node.Addrs {
		m.own[addr] = true
		if node.TakesNodePorts(addr) && loopback(addresses, addr) {
			taking[addr] = true
		}
	}
	m.nodePorts = slices.SortedFunc(maps.Keys(taking), netip.Addr.Compare)
	for _, addr := range m.nodePorts {
		m.takes = append(m.takes, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return m
}

// narrowed has a caller count as a pod of this node by the node's own range of pods where that
// is known, and not by the cluster's: under externalTrafficPolicy Local a pod of another node
// would else be served from all endpoints. Modes that forward need not tell these apart, since
// the answer to such a pod does not come back through this node; one to a relay does.
func narrowed(n sdk.Node) sdk.Node {
	own := func(c netip.Prefix) bool {
		return slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return sdk.FamilyOf(p.Addr()) == sdk.FamilyOf(c.Addr()) })
	}
	n.Pods.CIDRs = slices.Concat(slices.DeleteFunc(slices.Clone(n.Pods.CIDRs), own), n.PodCIDRs)
	return n
}

// loopback reports whether addr can be bound because a loopback interface has
// all of its range, as Linux has with 127.0.0.0/8.
func loopback(addresses []address, addr netip.Addr) bool {
	return addr.IsLoopback() && slices.ContainsFunc(addresses, func(a address) bool { return !a.prefix.IsSingleIP() && a.prefix.Contains(addr) })
}

// has reports whether an interface has addr.
func (m *machine) has(addr netip.Addr) bool {
	return slices.ContainsFunc(m.addresses, func(a address) bool { return a.prefix.Addr() == addr && !a.foreign })
}

// target is the address of this machine that rules send packets to: the one so far for
// as long as the machine has it.
func (m *machine) target(f sdk.Family, sofar netip.Addr) netip.Addr {
	if m.has(sofar) && !sofar.IsLoopback() {
		return sofar
	}
	return m.reachable(f)
}

// reachable is an address of this machine to which packets from elsewhere can be
// sent: one that Kubernetes knows it by, or any. Without one only the node itself
// can be served.
func (m *machine) reachable(f sdk.Family) netip.Addr {
	for _, addr := range m.node.Addrs {
		if sdk.FamilyOf(addr) == f && !addr.IsLoopback() && m.has(addr) {
			return addr
		}
	}
	for _, fits := range []func(netip.Addr) bool{netip.Addr.IsGlobalUnicast, netip.Addr.IsLinkLocalUnicast} {
		for _, a := range m.addresses {
			if addr := a.prefix.Addr(); sdk.FamilyOf(addr) == f && fits(addr) && !frame.OnLink(addr) && !a.foreign {
				return addr
			}
		}
	}
	if f == sdk.IPv6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
