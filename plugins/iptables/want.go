// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// A render collects the chains and tree entries that one Service needs on a node.
type render struct {
	node     sdk.Node
	comments bool                    // write a comment on every rule, not only where the rules are read back by it
	own      map[netip.AddrPort]bool // endpoints that have a KUBE-SEP chain
	chains   []iptables.Chain
	entries  []rules.Entry
}

// want returns the rules that svc needs on node. It is pure: equal arguments give equal rules.
func want(svc sdk.Service, node sdk.Node, comments bool) rules.Piece {
	r := render{node: node, comments: comments, own: make(map[netip.AddrPort]bool)}
	if svc.HealthPort != 0 {
		r.entries = append(r.entries, rules.Entry{In: healthPorts, Key: tree.Key{Protocol: sdk.TCP, Port: svc.HealthPort}, Rule: "-j ACCEPT"})
	}
	for _, f := range svc.Frontends {
		r.addFrontend(svc, f)
	}
	if len(svc.Cluster) > 0 { // otherwise the frontends' entries reject the packets
		r.addEndpoints(svc)
	}
	return rules.NewPiece(r.chains, r.entries)
}

// addEndpoints adds the chains that lead to the endpoints.
func (r *render) addEndpoints(svc sdk.Service) {
	for _, policy := range externalPolicies(svc) {
		r.addExternal(svc, policy)
	}
	reached := trimEndpoints(svc)
	for _, ep := range reached.Reachable() {
		if svc.MayCallItself(ep) || svc.Affinity > 0 {
			r.addEndpoint(svc, ep)
		}
	}
	if len(reached.Cluster) > 0 {
		r.addList(svc, clusterChain(svc.Name), svc.Cluster, r.masqueradeRules(svc, sdk.Cluster))
	}
	if len(reached.Local) > 0 {
		r.addList(svc, localChain(svc.Name), svc.Local, r.masqueradeRules(svc, sdk.Local))
	}
}

// trimEndpoints returns svc without the endpoint lists that no caller uses. A list under the Local policy of an
// external frontend is not enough to drop the other: pods and the node itself use all endpoints.
func trimEndpoints(svc sdk.Service) sdk.Service {
	if !svc.Uses(sdk.Local) {
		svc.Local = nil
	}
	if !svc.Uses(sdk.Cluster) && len(externalPolicies(svc)) == 0 {
		svc.Cluster = nil
	}
	return svc
}

// addChain adds a chain that belongs to svc.
func (r *render) addChain(svc sdk.Service, id iptables.ID, rules ...iptables.Rule) {
	if r.comments {
		addNames(svc, rules)
	}
	r.chains = append(r.chains, iptables.Chain{ID: id, Rules: rules})
}

// protocolMatch returns the match on the Service's protocol.
func protocolMatch(svc sdk.Service) string { return "-p " + svc.Name.Protocol.String() }

// addFrontend adds the entries for f. The entry in nat sends packets on to the endpoints. The entry in filter
// stops the packets that nat did not translate: REJECT if the Service has no endpoints at all, DROP if it has
// none on this node (policy Local) or if the source address is not allowed.
func (r *render) addFrontend(svc sdk.Service, f sdk.Frontend) {
	if hasEndpoints(svc, f) {
		r.addEntry(svc, f, servedTree(f), r.frontendComment(svc, f), "-j", r.allowSources(svc, f))
	}
	if f.Kind == sdk.ExternalIP || f.Kind == sdk.LoadBalancer {
		r.entries = append(r.entries, rules.Entry{In: loopedAddrs, Key: tree.Key{Addr: f.Addr.Addr()}, Rule: "-j " + foreignPort})
	}
	to, text := noEndpoint, "has no endpoints"
	switch {
	case len(svc.Cluster) == 0:
	case len(svc.Endpoints(f.Policy)) == 0:
		to, text = noLocalEndpoint, "has no local endpoints"
	case len(f.Sources) > 0:
		r.addEntry(svc, f, unservedTree(f), rejectComment(svc, f, "has source ranges"), "-j", denied)
		return
	default:
		return
	}
	if len(f.Sources) > 0 { // without an endpoint packets from other sources are dropped, not rejected
		to = r.addSources(svc, f, filter(sourcesChain(svc, f)), to, "-j "+denied)
	}
	r.addEntry(svc, f, unservedTree(f), rejectComment(svc, f, text), "-j", to)
}

// hasEndpoints reports whether f sends at least some of its callers to an endpoint.
func hasEndpoints(svc sdk.Service, f sdk.Frontend) bool {
	if f.External() {
		return len(svc.Cluster) > 0 // pods and the node use all endpoints, whatever the policy
	}
	return len(svc.Cluster) > 0 && len(svc.Endpoints(f.Policy)) > 0
}

// addEntry adds an entry for f to the tree with index in.
func (r *render) addEntry(svc sdk.Service, f sdk.Frontend, in int, words ...any) {
	k := tree.Key{Addr: f.Addr.Addr(), Protocol: svc.Name.Protocol, Port: f.Addr.Port()}
	if k.Addr.IsUnspecified() {
		k.Addr = netip.Addr{} // node ports are looked up by protocol and port only
	}
	r.entries = append(r.entries, rules.Entry{In: in, Key: k, Rule: iptables.Words(words...)})
}

// frontendComment returns the comment for the nat entry of f. The comment of a ClusterIP is optional, because
// adoption finds the Service's name in the first rule of the chain that the entry jumps to.
func (r *render) frontendComment(svc sdk.Service, f sdk.Frontend) iptables.Rule {
	switch {
	case f.External():
		return iptables.Words("-m comment --comment", iptables.Text(iptables.LabelFrontend(svc.Name, f.Kind, f.Policy)))
	case r.comments:
		return iptables.Words("-m comment --comment", iptables.Text(iptables.Label(svc.Name)+" cluster IP"))
	}
	return ""
}

// rejectComment returns the comment for a rule that rejects or drops packets to f: operators look there for the
// reason.
func rejectComment(svc sdk.Service, f sdk.Frontend, what string) iptables.Rule {
	return iptables.Words("-m comment --comment", iptables.Text(iptables.LabelFrontend(svc.Name, f.Kind, f.Policy)+" "+what))
}

// allowSources returns the chain that the nat entry of f jumps to. If f has source ranges, that is a new
// KUBE-FW chain which lets only these sources continue.
func (r *render) allowSources(svc sdk.Service, f sdk.Frontend) string {
	if len(f.Sources) == 0 {
		return target(svc, f)
	}
	return r.addSources(svc, f, nat(sourcesChain(svc, f)), target(svc, f))
}

// addSources adds a chain in which packets from the source ranges of f continue in the chain allowed, and then
// the other rules. It returns the chain's name.
func (r *render) addSources(svc sdk.Service, f sdk.Frontend, id iptables.ID, allowed string, others ...iptables.Rule) string {
	var rules []iptables.Rule
	for _, source := range f.Sources {
		rules = append(rules, iptables.Words(iptables.From(source), "-j", allowed))
	}
	r.addChain(svc, id, append(rules, others...)...)
	return id.Chain
}

// target returns the nat chain for the allowed callers of f.
func target(svc sdk.Service, f sdk.Frontend) string {
	switch {
	case f.External():
		return entryChain(svc, f.Policy)
	case f.Policy == sdk.Local:
		return localChain(svc.Name)
	}
	return clusterChain(svc.Name)
}

// addExternal adds the KUBE-EXT chain for external frontends with a policy. Under the Local policy, callers on
// this node still reach all endpoints, as if their packets had left the node and come back.
func (r *render) addExternal(svc sdk.Service, policy sdk.Policy) {
	id := nat(entryChain(svc, policy))
	all := clusterChain(svc.Name)
	if policy == sdk.Cluster {
		r.addChain(svc, id, iptables.Words("-j", markMasq), iptables.Words("-j", all))
		return
	}
	var rules []iptables.Rule
	for _, pods := range iptables.FromPods(r.node.Pods, svc.Name.Family) {
		rules = append(rules, iptables.Words(pods, "-j", all))
	}
	rules = append(rules,
		iptables.Words("-m addrtype --src-type LOCAL -j", markMasq),
		iptables.Words("-m addrtype --src-type LOCAL -j", all))
	if len(svc.Local) > 0 {
		rules = append(rules, iptables.Words("-j", localChain(svc.Name)))
	}
	r.addChain(svc, id, rules...)
}

// externalPolicies returns the policies of the external frontends. A Service in Kubernetes has one policy for
// all of them.
func externalPolicies(svc sdk.Service) []sdk.Policy {
	var policies []sdk.Policy
	for _, f := range svc.Frontends {
		if f.External() && !slices.Contains(policies, f.Policy) {
			policies = append(policies, f.Policy)
		}
	}
	return policies
}

// entryChain returns the chain for callers of external frontends with a policy.
func entryChain(svc sdk.Service, policy sdk.Policy) string {
	if policies := externalPolicies(svc); len(policies) == 0 || policies[0] == policy {
		return externalChain(svc.Name)
	}
	return "KUBE-EXT-" + iptables.Hash(iptables.Label(svc.Name)+svc.Name.Protocol.String()+policy.String())
}

// masqueradeRules returns the rules that mark callers of the ClusterIPs with a policy for masquerading. Packets
// to other frontends pass the same chain, so each rule matches the ClusterIP again.
func (r *render) masqueradeRules(svc sdk.Service, policy sdk.Policy) []iptables.Rule {
	var rules []iptables.Rule
	for _, f := range svc.Frontends {
		if !f.External() && f.Policy == policy {
			p := svc.Name.Protocol.String()
			rules = append(rules, iptables.Words("-d", f.Addr.Addr(), "-p", p, "-m", p, "--dport", f.Addr.Port(), "-j", markNotPod))
		}
	}
	return rules
}

// longestName is the maximum length of an interface name in the kernel (IFNAMSIZ without the trailing zero).
const longestName = 15

// checkPods rejects names that no interface can have: iptables would reject the rule, and with it the whole
// restore.
func checkPods(pods sdk.Pods) error {
	for field, name := range map[string]string{"bridgeInterface": pods.Bridge, "interfaceNamePrefix": pods.InterfacePrefix} {
		limit := longestName
		if field == "interfaceNamePrefix" {
			limit-- // in iptables a prefix ends in "+"
		}
		if len(name) > limit || strings.ContainsAny(name, "/ \t\n\r\x00") {
			return &sdk.Refusal{Field: "detectLocal." + field, Why: fmt.Sprintf("%q is no name, or too long, for an interface", name), Try: fmt.Sprintf("a name of at most %d letters", limit)}
		}
	}
	return nil
}
