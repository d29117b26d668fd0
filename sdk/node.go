// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A Node is what a dataplane must know of the node it serves. It comes in an
// [Update], and comes again when it changes: a dataplane never restarts for it.
type Node struct {
	Name string

	// Addrs are the node's addresses as Kubernetes knows them.
	Addrs []netip.Addr

	// NodePorts says which of the node's addresses take node ports: those that
	// one of these ranges holds. The dataplane matches them against the
	// addresses as they are now, follows a change within 5 s, and never counts
	// an address that a dataplane itself bound. Empty: none.
	NodePorts []netip.Prefix

	// Pods says which callers count as pods of this node.
	Pods Pods

	// PodCIDRs are the ranges that Kubernetes has given to this node for its pods, each a part of
	// one in Pods.CIDRs. They are left out in a family in which an endpoint on this node has another
	// address, for then something else gives pods their addresses. A dataplane that keeps to
	// kube-proxy's rules has no use for them; a relay has: see plugins/userspace.
	PodCIDRs []netip.Prefix

	// MasqueradeAll masquerades every connection to a ClusterIP.
	MasqueradeAll bool

	// MasqueradeBit is the bit of the packet mark, 0 to 31, that a dataplane may
	// use to mean "masquerade this".
	MasqueradeBit uint8

	// ServiceCIDRs are the ranges ClusterIPs are taken from, where known.
	ServiceCIDRs []netip.Prefix

	Conntrack ConntrackLimits
}

// TakesNodePorts reports whether addr, one of the node's, takes node ports.
func (n Node) TakesNodePorts(addr netip.Addr) bool {
	return slices.ContainsFunc(n.NodePorts, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Equal reports whether n and m mean the same.
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

// Pods says how to tell a pod of this node from other callers. At most one field
// is set; the zero value is "unknown", and then no caller counts as a pod.
type Pods struct {
	CIDRs           []netip.Prefix // by source address
	Bridge          string         // by the interface a packet comes in on
	InterfacePrefix string         // by the start of that interface's name
}

// Known reports whether pods of family f can be told from other callers.
func (p Pods) Known(f Family) bool {
	if p.Bridge != "" || p.InterfacePrefix != "" {
		return true
	}
	return slices.ContainsFunc(p.CIDRs, func(c netip.Prefix) bool { return FamilyOf(c.Addr()) == f })
}

// Contains reports whether a caller with source address addr, whose packets come
// in on interface iface, is a pod of this node. iface is empty when not known.
func (p Pods) Contains(addr netip.Addr, iface string) bool {
	switch {
	case p.Bridge != "":
		return iface == p.Bridge
	case p.InterfacePrefix != "":
		return strings.HasPrefix(iface, p.InterfacePrefix)
	}
	return slices.ContainsFunc(p.CIDRs, func(c netip.Prefix) bool { return c.Contains(addr) })
}

// Equal reports whether p and q mean the same.
func (p Pods) Equal(q Pods) bool {
	return slices.Equal(p.CIDRs, q.CIDRs) && p.Bridge == q.Bridge && p.InterfacePrefix == q.InterfacePrefix
}

// ConntrackLimits are the settings of the kernel's connection tracking that the
// operator asked for. A zero leaves the kernel's value as it is.
type ConntrackLimits struct {
	Max                   uint32 // net.netfilter.nf_conntrack_max
	TCPEstablishedTimeout time.Duration
	TCPCloseWaitTimeout   time.Duration
	TCPBeLiberal          bool // accept packets outside the window; false leaves the kernel's value
	UDPTimeout            time.Duration
	UDPStreamTimeout      time.Duration
}
