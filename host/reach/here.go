// SPDX-License-Identifier: Apache-2.0

/*
Package reach decides what a Kubernetes Service means on one node: by which
frontends it is reached, and which endpoints this node may use. It keeps nothing
and touches nothing; the same in gives the same out.

	Service        ──Read──▶ Service ──Frontends──▶ []PortFrontends
	EndpointSlices ──Read──▶ Slice   ──Choose─────▶ Lists{Cluster, Local, Serving}
	                                            ▲
	                                     Here, this node

The read records hold what matters and nothing else, so that two objects which
differ only in what we do not serve are equal as records, and reading one into a
record that was used before allocates nothing. API objects are never kept.
*/
package reach

import (
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// Here is what must be known of this node to decide.
type Here struct {
	Node  string // its name, as in an endpoint's nodeName
	Zone  string // its topology.kubernetes.io/zone; empty: not known
	Addrs []netip.Addr

	// ExternalIPs are the ranges a Service may take external addresses from.
	// Empty: from anywhere but this node's own addresses and Reserved ranges.
	ExternalIPs []netip.Prefix

	// NodeAddresses says what becomes of an external IP that is one of Addrs, while
	// ExternalIPs is empty.
	NodeAddresses NodeAddresses

	// Reserved are the ranges of pods and ClusterIPs.
	Reserved []netip.Prefix

	// Others are addresses of other Nodes, with the Node's name, where the dataplane would take all that this node
	// sends there (kubernetes#75290). No Service gets them: they are left out as with ipMode Proxy.
	Others map[netip.Addr]string

	// Loopback lets Services and endpoints name loopback addresses. Only a
	// source that speaks for one machine may set it: over the API, such an
	// endpoint would reach what a node listens on for itself (CVE-2021-25737).
	Loopback bool
}

// Equal reports whether the same decisions follow from h and g, but for Others.
func (h Here) Equal(g Here) bool {
	return h.Node == g.Node && h.Zone == g.Zone && h.Loopback == g.Loopback &&
		slices.Equal(h.Addrs, g.Addrs) &&
		slices.Equal(h.ExternalIPs, g.ExternalIPs) && h.NodeAddresses == g.NodeAddresses &&
		slices.Equal(h.Reserved, g.Reserved)
}

// NodeAddresses says whether a Service may have an address of the node as external IP.
type NodeAddresses uint8

// What becomes of such an external IP. Others than the node's own are not concerned.
const (
	RefuseNodeAddresses NodeAddresses = iota
	WarnOfNodeAddresses               // they are served, each with a warning
	ServeNodeAddresses
)

// A Problem is something in an object that is not served as written, or is and may not be
// meant so, and why.
type Problem struct {
	Reason  string // one word for events and counters
	Message string
}

func (p Problem) String() string { return p.Message }

// The reasons of problems.
const (
	IncorrectIPVersion = "IncorrectIPVersion" // an address of another IP family is not used: correct the object
	InvalidAddress     = "InvalidAddress"     // an invalid or forbidden address is not used: correct the object
	InvalidPort        = "InvalidPort"        // an invalid port is not used: correct the object
	ExternalIPRefused  = "ExternalIPRefused"  // a Service is not served at an external IP that `externalIPs` does not allow: remove it, or set `externalIPs.allow`
	ExternalIPOfNode   = "ExternalIPOfNode"   // a Service is served at an external IP that is an address of this node, as by kube-proxy (W020)
	UnknownValue       = "UnknownValue"       // a value that this version does not know has no effect: correct the object, or upgrade Pointsman
)

// parseAddr reads an address as Kubernetes does: an old object may write IPv4
// octets with leading zeros, and means decimal by them.
func parseAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		addr, err = netip.ParseAddr(withoutLeadingZeros(s))
	}
	return addr, err == nil && printable(s) // a zone may be anything
}

// printable reports whether text has nothing that would change what a terminal or a log shows besides.
func printable(text string) bool { return !strings.ContainsFunc(text, unicode.IsControl) }

// parsePrefix reads a range such as 10.0.0.0/8, and clears what its length does
// not cover.
func parsePrefix(s string) (netip.Prefix, bool) {
	s = strings.TrimSpace(s)
	p, err := netip.ParsePrefix(s)
	if err != nil {
		addr, bits, _ := strings.Cut(s, "/")
		p, err = netip.ParsePrefix(withoutLeadingZeros(addr) + "/" + bits)
	}
	return p.Masked(), err == nil
}

func withoutLeadingZeros(s string) string {
	octets := strings.Split(s, ".")
	if len(octets) != 4 {
		return s
	}
	for i, o := range octets {
		if o = strings.TrimLeft(o, "0"); o == "" {
			o = "0"
		}
		octets[i] = o
	}
	return strings.Join(octets, ".")
}

// broadcast is every machine's on a link, so it is no machine's.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Unusable says why addr is no address that a machine can have; empty: it is one.
func Unusable(addr netip.Addr) string { return unusable(addr, true) }

// unusable says why nothing may be served at addr; empty: it may.
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

// unfit says why nothing may be sent to addr, nor a Service take it from outside:
// each machine has a link of its own.
func unfit(addr netip.Addr, loopback bool) string {
	if addr.IsLinkLocalUnicast() {
		return "is link-local"
	}
	return unusable(addr, loopback)
}

func within(addr netip.Addr, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
}
