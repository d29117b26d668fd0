// SPDX-License-Identifier: Apache-2.0

/*
Package reach decides what a Kubernetes Service means on one node: at which
frontends it is reached, and which endpoints this node may use. All functions are
pure: equal arguments give equal results.

	Service        ──Read──▶ Service ──Frontends──▶ []PortFrontends
	EndpointSlices ──Read──▶ Slice   ──Choose─────▶ Lists{Cluster, Local, Serving}
	                                            ▲
	                                         ThisNode

The records (Service, Slice) contain only the fields that matter, so two objects
that differ only in other fields are equal as records. Reading an object into a
record that was used before allocates nothing. API objects are never retained.
Start reading at Choose and Frontends.
*/
package reach

import (
	"net/netip"
	"slices"
	"strings"
	"unicode"

	netutils "k8s.io/utils/net"
)

// ThisNode holds the facts about this node on which decisions depend.
type ThisNode struct {
	Node  string // its name, as in an endpoint's nodeName
	Zone  string // its label topology.kubernetes.io/zone; empty if not known
	Addrs []netip.Addr

	// ExternalIPs are the ranges in which Services may have external IPs. If empty, every
	// address is allowed except this node's own and those in Reserved.
	ExternalIPs []netip.Prefix

	// NodeAddresses tells whether external IPs in Addrs are allowed if ExternalIPs is empty.
	NodeAddresses NodeAddresses

	// Reserved are the ranges of pods and ClusterIPs.
	Reserved []netip.Prefix

	// Others maps addresses of other Nodes to their names. It is set if the dataplane would
	// take over all traffic that this node sends to such an address (kubernetes#75290). These
	// addresses are then not served, as with ipMode Proxy.
	Others map[netip.Addr]string

	// Loopback permits Services and endpoints to use loopback addresses. Only sources that
	// describe one machine may set it: with the API, such an endpoint would expose servers that
	// listen on a node's loopback address only (CVE-2021-25737).
	Loopback bool
}

// Equal reports whether h and g lead to the same decisions. It ignores Others.
func (h ThisNode) Equal(g ThisNode) bool {
	return h.Node == g.Node && h.Zone == g.Zone && h.Loopback == g.Loopback &&
		slices.Equal(h.Addrs, g.Addrs) &&
		slices.Equal(h.ExternalIPs, g.ExternalIPs) && h.NodeAddresses == g.NodeAddresses &&
		slices.Equal(h.Reserved, g.Reserved)
}

// NodeAddresses tells whether a Service may have an address of this node as external IP.
type NodeAddresses uint8

// Values of NodeAddresses. They do not affect other external IPs.
const (
	RefuseNodeAddresses NodeAddresses = iota
	WarnOfNodeAddresses               // serve them, each with a warning
	ServeNodeAddresses
)

// A Problem is a part of an object that is not served as specified, or that is served but may
// be a mistake.
type Problem struct {
	Reason  string // one word for events and counters
	Message string
}

func (p Problem) String() string { return p.Message }

// Reasons of problems.
const (
	IncorrectIPVersion = "IncorrectIPVersion" // an address of another IP family is not used: correct the object
	InvalidAddress     = "InvalidAddress"     // an invalid or forbidden address is not used: correct the object
	InvalidPort        = "InvalidPort"        // an invalid port is not used: correct the object
	ExternalIPRefused  = "ExternalIPRefused"  // a Service is not served at an external IP that `externalIPs` does not allow: remove it, or set `externalIPs.allow`
	ExternalIPOfNode   = "ExternalIPOfNode"   // a Service is served at an external IP that is an address of this node, as by kube-proxy (W020)
	UnknownValue       = "UnknownValue"       // a value that this version does not know has no effect: correct the object, or upgrade Pointsman
)

// parseAddr parses an address as Kubernetes does: old objects may contain IPv4 octets with
// leading zeros, which are decimal.
func parseAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		addr, err = netip.ParseAddr(netutils.ParseIPSloppy(s).String())
	}
	return addr, err == nil && printable(s) // an IPv6 zone may contain any character
}

// printable reports whether text is free of control characters, which could manipulate a
// terminal or a log.
func printable(text string) bool { return !strings.ContainsFunc(text, unicode.IsControl) }

// parsePrefix is like parseAddr, for a range such as 10.0.0.0/8. It clears the bits after the
// prefix.
func parsePrefix(s string) (netip.Prefix, bool) {
	s = strings.TrimSpace(s)
	p, err := netip.ParsePrefix(s)
	if err != nil {
		_, sloppy, failed := netutils.ParseCIDRSloppy(s)
		if failed == nil {
			p, err = netip.ParsePrefix(sloppy.String())
		}
	}
	return p.Masked(), err == nil
}

// broadcast addresses all machines of a link, so it cannot be the address of a machine.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Unusable returns the reason why addr cannot be the address of a machine, or "" if it can.
func Unusable(addr netip.Addr) string { return unusable(addr, true) }

// unusable returns the reason why nothing may be served at addr, or "" if it may.
func unusable(addr netip.Addr, loopback bool) string {
	switch {
	case addr.Zone() != "":
		return "has a zone"
	case addr.Is4In6():
		return "is an IPv4 address written as IPv6"
	case addr.IsUnspecified():
		return "is unspecified"
	case addr.IsMulticast():
		return "is multicast"
	case addr == broadcast:
		return "is the broadcast address"
	case addr.IsLoopback() && !loopback:
		return "is loopback"
	}
	return ""
}

// unusableRemote returns the reason why addr may be neither an endpoint nor an external IP, or
// "" if it may. Unlike unusable, it excludes link-local addresses, because each machine has
// links of its own.
func unusableRemote(addr netip.Addr, loopback bool) string {
	if addr.IsLinkLocalUnicast() {
		return "is link-local"
	}
	return unusable(addr, loopback)
}

func within(addr netip.Addr, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
}
