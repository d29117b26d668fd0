// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A Node holds the facts about the node that a dataplane needs. It is part of an [Update], and
// is sent again when it changes: a dataplane does not restart for that.
type Node struct {
	Name string

	// Addrs are the node's addresses as Kubernetes knows them.
	Addrs []netip.Addr

	// NodePorts are ranges: those addresses of the node accept node ports that are in one of
	// them. The dataplane matches the ranges against the node's current addresses, follows
	// changes within 5 s, and never counts an address that a dataplane itself assigned. Empty
	// means none.
	NodePorts []netip.Prefix

	// Pods defines which callers count as pods of this node.
	Pods Pods

	// PodCIDRs are the ranges that Kubernetes has assigned to this node for its pods, each a
	// part of a range in Pods.CIDRs. They are empty in a family in which an endpoint on this
	// node has had an address outside them, because then something else assigns the addresses of
	// pods. A dataplane that follows kube-proxy's rules does not need them; a relay does: see
	// plugins/userspace.
	PodCIDRs []netip.Prefix

	// MasqueradeAll masquerades every connection to a ClusterIP.
	MasqueradeAll bool

	// MasqueradeBit is the bit of the packet mark, 0 to 31, that a dataplane may use to mark
	// packets for masquerading.
	MasqueradeBit uint8

	// ServiceCIDRs are the ranges of ClusterIPs, as far as known.
	ServiceCIDRs []netip.Prefix

	Conntrack ConntrackLimits
}

// TakesNodePorts reports whether addr, which must be an address of the node, accepts node
// ports.
func (n Node) TakesNodePorts(addr netip.Addr) bool {
	return slices.ContainsFunc(n.NodePorts, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Equal reports whether n and m are equal.
func (n Node) Equal(m Node) bool {
	return n.Name == m.Name &&
		slices.Equal(n.Addrs, m.Addrs) &&
		slices.Equal(n.NodePorts, m.NodePorts) &&
		n.Pods.Equal(m.Pods) &&
		slices.Equal(n.PodCIDRs, m.PodCIDRs) &&
		n.MasqueradeAll == m.MasqueradeAll &&
		n.MasqueradeBit == m.MasqueradeBit &&
		slices.Equal(n.ServiceCIDRs, m.ServiceCIDRs) &&
		n.Conntrack == m.Conntrack
}

// Pods defines how to recognize a pod of this node. At most one field is set. The zero value
// means unknown, and then no caller counts as a pod.
type Pods struct {
	CIDRs           []netip.Prefix // by source address
	Bridge          string         // by the input interface of a packet
	InterfacePrefix string         // by the prefix of that interface's name
}

// Known reports whether pods of family f can be recognized.
func (p Pods) Known(f Family) bool {
	if p.Bridge != "" || p.InterfacePrefix != "" {
		return true
	}
	return slices.ContainsFunc(p.CIDRs, func(c netip.Prefix) bool { return FamilyOf(c.Addr()) == f })
}

// Contains reports whether a caller with source address addr, whose packets arrive on interface
// iface, is a pod of this node. iface is empty if not known.
func (p Pods) Contains(addr netip.Addr, iface string) bool {
	switch {
	case p.Bridge != "":
		return iface == p.Bridge
	case p.InterfacePrefix != "":
		return strings.HasPrefix(iface, p.InterfacePrefix)
	}
	return slices.ContainsFunc(p.CIDRs, func(c netip.Prefix) bool { return c.Contains(addr) })
}

// Equal reports whether p and q are equal.
func (p Pods) Equal(q Pods) bool {
	return slices.Equal(p.CIDRs, q.CIDRs) && p.Bridge == q.Bridge && p.InterfacePrefix == q.InterfacePrefix
}

// ConntrackLimits are the connection tracking settings that the operator configured. Zero
// leaves the kernel's value unchanged.
type ConntrackLimits struct {
	Max                   uint32 // net.netfilter.nf_conntrack_max
	TCPEstablishedTimeout time.Duration
	TCPCloseWaitTimeout   time.Duration
	TCPBeLiberal          bool // accept packets outside the window; false leaves the kernel's value
	UDPTimeout            time.Duration
	UDPStreamTimeout      time.Duration
}
