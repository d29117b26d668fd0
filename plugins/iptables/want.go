// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// A render puts together what one Service needs, on a node of this kind: chains of its own,
// and entries that lead there from the trees.
type render struct {
	node sdk.Node
	own  map[netip.AddrPort]bool // endpoints with a chain of their own
	ruleset.Desired
}

// want is what svc needs on node. It is pure: the same Service on the same node
// always needs the same.
func want(svc sdk.Service, node sdk.Node) ruleset.Desired {
	r := render{node: node, own: make(map[netip.AddrPort]bool)}
	if svc.HealthPort != 0 {
		r.Entries = append(r.Entries, healthEntry(svc.HealthPort))
	}
	r.service(svc)
	return r.Desired
}

// healthEntry accepts health checks on port.
func healthEntry(port uint16) ruleset.Entry {
	return ruleset.Entry{In: healthPorts, Entry: tree.Entry{Key: tree.Key{Protocol: sdk.TCP, Port: port}, Rule: "-j ACCEPT"}}
}

func (r *render) service(svc sdk.Service) {
	for _, f := range svc.Frontends {
		r.frontend(svc, f)
	}
	if len(svc.Cluster) == 0 {
		return // no endpoint serves it, and every frontend says so
	}
	for _, policy := range externalPolicies(svc) {
		r.external(svc, policy)
	}
	reached := reached(svc)
	for _, ep := range reached.Reachable() {
		if svc.MayCallItself(ep) || svc.Affinity > 0 {
			r.endpoint(svc, ep)
		}
	}
	if len(reached.Cluster) > 0 {
		r.spread(svc, clusterChain(svc.Name), svc.Cluster, r.masquerade(svc, sdk.Cluster))
	}
	if len(reached.Local) > 0 {
		r.spread(svc, localChain(svc.Name), svc.Local, r.masquerade(svc, sdk.Local))
	}
}

// reached is svc with only those lists that some caller is sent to. Under the
// Local policy of an external frontend, pods and the node use all endpoints.
func reached(svc sdk.Service) sdk.Service {
	if !svc.Uses(sdk.Local) {
		svc.Local = nil
	}
	if !svc.Uses(sdk.Cluster) && len(externalPolicies(svc)) == 0 {
		svc.Cluster = nil
	}
	return svc
}

// chain adds a chain.
func (r *render) chain(id iptables.ID, rules ...iptables.Rule) {
	r.Chains = append(r.Chains, iptables.Chain{ID: id, Rules: rules})
}

// proto is the words that say which protocol is meant.
func proto(svc sdk.Service) string { return "-p " + svc.Name.Protocol.String() }
