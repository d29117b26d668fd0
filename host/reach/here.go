// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"net/netip"
	"slices"
)

// Here is what must be known of this node to decide.
type Here struct {
	Node  string // its name, as in an endpoint's nodeName
	Zone  string // its topology.kubernetes.io/zone; empty: not known
	Addrs []netip.Addr

	// ExternalIPs are the ranges a Service may take external addresses from.
	// Empty: from anywhere but this node's own addresses and Reserved ranges.
	ExternalIPs []netip.Prefix

	// Reserved are the ranges of pods and ClusterIPs.
	Reserved []netip.Prefix

	// Loopback lets Services and endpoints name loopback addresses. Only a
	// source that speaks for one machine may set it: over the API, such an
	// endpoint would reach what a node listens on for itself (CVE-2021-25737).
	Loopback bool
}

// Equal reports whether the same decisions follow from h and g.
func (h Here) Equal(g Here) bool {
	return h.Node == g.Node && h.Zone == g.Zone && h.Loopback == g.Loopback &&
		slices.Equal(h.Addrs, g.Addrs) &&
		slices.Equal(h.ExternalIPs, g.ExternalIPs) &&
		slices.Equal(h.Reserved, g.Reserved)
}

// A Problem is something in an object that is not served as written, and why.
type Problem struct {
	Reason  string // one word for events and counters
	Message string
}

// The reasons of problems.
const (
	IncorrectIPVersion = "IncorrectIPVersion" // an address of a family the object is not in
	InvalidAddress     = "InvalidAddress"     // no address at all, or one that may not be used
	InvalidPort        = "InvalidPort"
	ExternalIPRefused  = "ExternalIPRefused"
	UnknownValue       = "UnknownValue" // a value from a later Kubernetes
)
