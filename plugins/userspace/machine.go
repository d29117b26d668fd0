// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
)

// An address is an address of this machine, or a range of them.
type address struct {
	prefix  netip.Prefix // the address with the prefix of its link; if whole, the range
	whole   bool         // the machine has all addresses of prefix
	foreign bool         // a dataplane added it, so it takes no node ports
}

// A machine describes the node to connections: the host's sdk.Node and the machine's addresses. It is immutable.
type machine struct {
	node      sdk.Node
	addresses []address
	own       map[netip.Addr]bool // single addresses of the machine, and those of node
	nodePorts []netip.Addr        // single addresses that take node ports, sorted
	takes     []netip.Prefix      // all addresses and ranges that take node ports
}

func newMachine(node sdk.Node, addresses []address) *machine {
	m := &machine{node: withOwnPods(node), addresses: addresses, own: make(map[netip.Addr]bool)}
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

// withOwnPods replaces the pod ranges of the cluster by those of the node, in each family in which the node's are known.
// With the cluster's, externalTrafficPolicy Local would serve pods of other nodes from all endpoints. Modes that only
// forward do not need this: their replies to such a pod do not pass through this node.
func withOwnPods(n sdk.Node) sdk.Node {
	own := func(c netip.Prefix) bool {
		return slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return sdk.FamilyOf(p.Addr()) == sdk.FamilyOf(c.Addr()) })
	}
	n.Pods.CIDRs = slices.Concat(slices.DeleteFunc(slices.Clone(n.Pods.CIDRs), own), n.PodCIDRs)
	return n
}

// loopback reports whether a socket can be bound to addr because a loopback interface has its whole range, like
// 127.0.0.0/8 on Linux.
func loopback(addresses []address, addr netip.Addr) bool {
	return addr.IsLoopback() && slices.ContainsFunc(addresses, func(a address) bool { return !a.prefix.IsSingleIP() && a.prefix.Contains(addr) })
}

// has reports whether an interface has addr.
func (m *machine) has(addr netip.Addr) bool {
	return slices.ContainsFunc(m.addresses, func(a address) bool { return a.prefix.Addr() == addr && !a.foreign })
}

// target returns the address of this machine to which rules redirect packets: the present one while the machine has it.
func (m *machine) target(f sdk.Family, present netip.Addr) netip.Addr {
	if m.has(present) && !present.IsLoopback() {
		return present
	}
	return m.reachable(f)
}

// reachable returns an address of this machine that other machines can reach, preferably one of the node's addresses in
// Kubernetes. If there is none, it returns the loopback address: then only the node itself is served.
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
