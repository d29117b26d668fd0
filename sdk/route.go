// SPDX-License-Identifier: Apache-2.0

package sdk

import "net/netip"

// A Caller is the sender of a packet to a frontend, as far as routing depends on it.
type Caller struct {
	Addr netip.Addr
	From Origin
}

// An Origin is the location of a caller. The zero value is Elsewhere.
type Origin uint8

// Values of Origin. OnPod and Elsewhere can be distinguished only if the node knows its pods. A
// pod in the host's network is OnNode.
const (
	Elsewhere Origin = iota // another machine, or a pod that cannot be distinguished from one
	OnPod                   // a pod of this node, as Node.Pods defines it
	OnNode                  // a process of the node itself
)

func (o Origin) String() string {
	switch o {
	case OnPod:
		return "pod"
	case OnNode:
		return "node"
	}
	return "elsewhere"
}

// A Verdict is the fate of a packet. The zero value is Drop.
type Verdict uint8

// Values of Verdict.
const (
	Drop    Verdict = iota // no reply
	Reject                 // immediate reply: ICMP port unreachable, or a TCP reset
	Forward                // sent to an endpoint
)

func (v Verdict) String() string {
	switch v {
	case Reject:
		return "reject"
	case Forward:
		return "forward"
	}
	return "drop"
}

// A Route is the result for a caller's packets to a frontend.
type Route struct {
	Verdict    Verdict
	Endpoints  []Endpoint // for Forward: the list to choose from
	Masquerade bool       // for Forward: the endpoint sees the node's address instead of the caller's
}

// Masquerades reports whether the caller's address is hidden from ep: because the route says
// so, or because ep calls itself and its reply must return through the node.
func (r Route) Masquerades(ep Endpoint, from Caller) bool {
	return r.Masquerade || ep.Addr.Addr() == from.Addr
}

// Route implements contract lines 1 and 2: it returns the route of a packet that caller from
// sends to frontend f of s on node. Every dataplane must have the same result; a relay may
// simply call Route.
func (s Service) Route(f Frontend, from Caller, node Node) Route {
	switch {
	case !f.Allows(from.Addr):
		return Route{Verdict: Drop}
	case len(s.Cluster) == 0:
		return Route{Verdict: Reject}
	}
	endpoints, masquerade := s.endpointsFor(f, from.From, node)
	if len(endpoints) == 0 {
		return Route{Verdict: Drop}
	}
	return Route{Verdict: Forward, Endpoints: endpoints, Masquerade: masquerade}
}

// endpointsFor returns the list of endpoints, and whether all of them must be masqueraded.
func (s Service) endpointsFor(f Frontend, from Origin, node Node) ([]Endpoint, bool) {
	switch {
	case !f.External():
		offCluster := node.Pods.Known(s.Name.Family) && from != OnPod
		return s.Endpoints(f.Policy), node.MasqueradeAll || offCluster
	case f.Policy == Cluster:
		return s.Cluster, true
	case from == OnPod:
		return s.Cluster, false
	case from == OnNode:
		return s.Cluster, true
	}
	return s.Local, false
}
