// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// A Step is one decision on a packet's way to its verdict, with the reason for its result.
type Step struct{ Question, Answer string }

// Route returns the route of a packet that caller from sends to frontend f of s on node, as
// [sdk.Service.Route] does, and the decisions that lead to it.
func Route(s sdk.Service, f sdk.Frontend, from sdk.Caller, node sdk.Node) (sdk.Route, []Step) {
	route := s.Route(f, from, node)
	steps := []Step{{"allowed", explainAllowed(f, from)}}
	if !f.Allows(from.Addr) {
		return route, steps
	}
	if len(s.Cluster) == 0 {
		return route, append(steps, Step{"endpoints", "none is usable on any node, so callers are rejected"})
	}
	steps = append(steps, Step{"endpoints", explainEndpoints(s, f, from.From, route)})
	if route.Verdict == sdk.Forward {
		steps = append(steps, Step{"masquerade", explainMasquerade(f, from.From, node, s.Name.Family)})
	}
	return route, steps
}

func explainAllowed(f sdk.Frontend, from sdk.Caller) string {
	var texts []string
	for _, p := range f.Sources {
		texts = append(texts, p.String())
	}
	ranges := strings.Join(texts, ", ")
	switch {
	case len(f.Sources) == 0:
		return "yes: it has no source ranges"
	case f.Allows(from.Addr):
		return fmt.Sprintf("yes: %s is in %s", from.Addr, ranges)
	}
	return fmt.Sprintf("no: %s is not in %s, the Service's source ranges", from.Addr, ranges)
}

// explainEndpoints returns text that says from how many endpoints one is chosen, and why from these.
func explainEndpoints(s sdk.Service, f sdk.Frontend, from sdk.Origin, route sdk.Route) string {
	why := "its traffic policy is " + f.Policy.String()
	if f.External() && f.Policy == sdk.Local && from != sdk.Elsewhere {
		why = "its traffic policy is local, but that applies only to callers from outside the cluster"
	}
	if route.Verdict == sdk.Drop {
		return fmt.Sprintf("none of the %d is on this node, and %s", len(s.Cluster), why)
	}
	return fmt.Sprintf("one of %d: %s", len(route.Endpoints), why)
}

// explainMasquerade returns text that says whether the packet is masqueraded, so that the endpoint sees the node
// instead of the caller, and why.
func explainMasquerade(f sdk.Frontend, from sdk.Origin, node sdk.Node, family sdk.Family) string {
	switch {
	case !f.External() && node.MasqueradeAll:
		return "yes: masqueradeAll is set"
	case !f.External() && !node.Pods.Known(family):
		return "no: this node cannot distinguish its pods from other callers"
	case !f.External() && from != sdk.OnPod:
		return "yes: the caller is not a pod of this node, and the destination is a cluster IP"
	case !f.External():
		return "no: the caller is a pod of this node"
	case f.Policy == sdk.Cluster:
		return "yes: the policy cluster may choose an endpoint of another node, whose replies must return through this one"
	case from == sdk.OnPod:
		return "no: the caller is a pod of this node"
	case from == sdk.OnNode:
		return "yes: the caller is this node, and the endpoint may be on another node"
	}
	return "no: the policy local keeps the caller's address"
}
