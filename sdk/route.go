// SPDX-License-Identifier: Apache-2.0

package sdk

import "net/netip"

// A Caller is the sender of a packet to a frontend, as far as a dataplane must know.
type Caller struct {
	Addr netip.Addr
	From Origin
}

// An Origin is where a caller stands. The zero value is Elsewhere.
type Origin uint8

// The origins. Only a node that knows its pods can tell OnPod from Elsewhere; a
// pod in the host's network is OnNode.
const (
	Elsewhere Origin = iota // another machine, or a pod we cannot tell from one
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

// A Verdict is what becomes of a packet. The zero value is Drop.
type Verdict uint8

// The verdicts.
const (
	Drop    Verdict = iota // no answer at all
	Reject                 // answered at once: ICMP port unreachable, or a TCP reset
	Forward                // sent on to an endpoint
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

// A Route is where one caller's packets to one frontend go.
type Route struct {
	Verdict    Verdict
	Endpoints  []Endpoint // with Forward: the list to choose from
	Masquerade bool       // with Forward: the endpoint sees the node, not the caller
}

// Masquerades reports whether the caller's address is hidden from ep: because
// the route says so, or because ep calls itself and its reply must come back
// through the node.
func (r Route) Masquerades(ep Endpoint, from Caller) bool {
	return r.Masquerade || ep.Addr.Addr() == from.Addr
}

// Route is the contract's lines 1 and 2 as a function: what becomes of a packet
// that from sends to frontend f of s, on node. It is what every dataplane must
// do in its own way; a relay may simply ask it.
func (s Service) Route(f Frontend, from Caller, node Node) Route {
	switch {
	case !f.Allows(from.Addr):
		return Route{Verdict: Drop}
	case len(s.Cluster) == 0:
		return Route{Verdict: Reject}
	}
	endpoints, masquerade := s.draw(f, from.From, node)
	if len(endpoints) == 0 {
		return Route{Verdict: Drop}
	}
	return Route{Verdict: Forward, Endpoints: endpoints, Masquerade: masquerade}
}

// draw chooses the list, and whether the caller is hidden from all of it.
func (s Service) draw(f Frontend, from Origin, node Node) ([]Endpoint, bool) {
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
