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

// A render puts together what one Service needs, on a node of this kind: chains of its own,
// and entries that lead there from the trees.
type render struct {
	node     sdk.Node
	comments bool                    // on every rule, not only on those that are read back by them
	own      map[netip.AddrPort]bool // endpoints with a chain of their own
	chains   []iptables.Chain
	entries  []rules.Entry
}

// want is what svc needs on node. It is pure: the same Service on the same node
// always needs the same.
func want(svc sdk.Service, node sdk.Node, comments bool) rules.Piece {
	r := render{node: node, comments: comments, own: make(map[netip.AddrPort]bool)}
	if svc.HealthPort != 0 {
		r.entries = append(r.entries, rules.Entry{In: healthPorts, Key: tree.Key{Protocol: sdk.TCP, Port: svc.HealthPort}, Rule: "-j ACCEPT"})
	}
	r.service(svc)
	return rules.NewPiece(r.chains, r.entries)
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

// chain adds a chain of svc.
func (r *render) chain(svc sdk.Service, id iptables.ID, rules ...iptables.Rule) {
	if r.comments {
		named(svc, rules)
	}
	r.chains = append(r.chains, iptables.Chain{ID: id, Rules: rules})
}

// proto is the words that say which protocol is meant.
func proto(svc sdk.Service) string { return "-p " + svc.Name.Protocol.String() }

// frontend catches the packets sent to f. In nat it sends on those that an endpoint
// may answer. In filter it turns away what nat did not send on: REJECT where
// no endpoint serves at all, DROP where none near does or the source is not allowed.
func (r *render) frontend(svc sdk.Service, f sdk.Frontend) {
	if answered(svc, f) {
		r.catch(svc, f, servedTree(f), r.wayIn(svc, f), "-j", r.entrance(svc, f))
	}
	if f.Kind == sdk.ExternalIP || f.Kind == sdk.LoadBalancer {
		r.entries = append(r.entries, rules.Entry{In: loopedAddrs, Key: tree.Key{Addr: f.Addr.Addr()}, Rule: "-j " + foreign})
	}
	to, text := unserved, "has no endpoints"
	switch {
	case len(svc.Cluster) == 0:
	case len(svc.Endpoints(f.Policy)) == 0:
		to, text = noneLocal, "has no local endpoints"
	case len(f.Sources) > 0:
		r.catch(svc, f, unservedTree(f), why(svc, f, "has source ranges"), "-j", denied)
		return
	default:
		return
	}
	if len(f.Sources) > 0 {
		to = r.denySources(svc, f, to)
	}
	r.catch(svc, f, unservedTree(f), why(svc, f, text), "-j", to)
}

// answered reports whether any caller of f is sent on.
func answered(svc sdk.Service, f sdk.Frontend) bool {
	if f.External() {
		return len(svc.Cluster) > 0 // pods and the node use all endpoints, whatever the policy
	}
	return len(svc.Cluster) > 0 && len(svc.Endpoints(f.Policy)) > 0
}

// catch adds an entry for f to a tree.
func (r *render) catch(svc sdk.Service, f sdk.Frontend, in int, words ...any) {
	k := tree.Key{Addr: f.Addr.Addr(), Protocol: svc.Name.Protocol, Port: f.Addr.Port()}
	if k.Addr.IsUnspecified() {
		k.Addr = netip.Addr{} // it hangs by its port alone
	}
	r.entries = append(r.entries, rules.Entry{In: in, Key: k, Rule: iptables.Words(words...)})
}

// wayIn names a frontend in the rule that leads on. A ClusterIP's need not be read back:
// the first rule of its chain has the Service's name.
func (r *render) wayIn(svc sdk.Service, f sdk.Frontend) iptables.Rule {
	switch {
	case f.External():
		return iptables.Words("-m comment --comment", iptables.Text(iptables.LabelFrontend(svc.Name, f.Kind, f.Policy)))
	case r.comments:
		return iptables.Words("-m comment --comment", iptables.Text(iptables.Label(svc.Name)+" cluster IP"))
	}
	return ""
}

// why names the frontend in a rule that turns callers away: it is where an operator
// looks.
func why(svc sdk.Service, f sdk.Frontend, what string) iptables.Rule {
	return iptables.Words("-m comment --comment", iptables.Text(iptables.LabelFrontend(svc.Name, f.Kind, f.Policy)+" "+what))
}

// entrance is the chain that the callers of f go to first.
func (r *render) entrance(svc sdk.Service, f sdk.Frontend) string {
	if len(f.Sources) == 0 {
		return target(svc, f)
	}
	id := nat(sourcesChain(svc, f))
	var rules []iptables.Rule
	for _, source := range f.Sources {
		rules = append(rules, iptables.Words(iptables.From(source), "-j", target(svc, f)))
	}
	r.chain(svc, id, rules...)
	return id.Chain
}

// denySources returns the chain that tells the callers of an f without an endpoint apart: those that might have called
// go to the chain allowed, and those that might not are dropped.
func (r *render) denySources(svc sdk.Service, f sdk.Frontend, allowed string) string {
	id := filter(sourcesChain(svc, f))
	var rules []iptables.Rule
	for _, source := range f.Sources {
		rules = append(rules, iptables.Words(iptables.From(source), "-j", allowed))
	}
	r.chain(svc, id, append(rules, iptables.Words("-j", denied))...)
	return id.Chain
}

// target is the chain for callers of f that are allowed.
func target(svc sdk.Service, f sdk.Frontend) string {
	switch {
	case f.External():
		return entryChain(svc, f.Policy)
	case f.Policy == sdk.Local:
		return localChain(svc.Name)
	}
	return clusterChain(svc.Name)
}

// external is the way in from outside the cluster, for frontends that have policy.
// Under the Local policy a caller on this node still reaches the whole cluster, as
// if it went out and came back in.
func (r *render) external(svc sdk.Service, policy sdk.Policy) {
	id := nat(entryChain(svc, policy))
	all := clusterChain(svc.Name)
	if policy == sdk.Cluster {
		r.chain(svc, id, iptables.Words("-j", markMasq), iptables.Words("-j", all))
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
	r.chain(svc, id, rules...)
}

// externalPolicies are those of the frontends that are no ClusterIP. Kubernetes
// has one for them all.
func externalPolicies(svc sdk.Service) []sdk.Policy {
	var policies []sdk.Policy
	for _, f := range svc.Frontends {
		if f.External() && !slices.Contains(policies, f.Policy) {
			policies = append(policies, f.Policy)
		}
	}
	return policies
}

// entryChain is where the callers of external frontends with policy come in.
func entryChain(svc sdk.Service, policy sdk.Policy) string {
	if policies := externalPolicies(svc); len(policies) == 0 || policies[0] == policy {
		return externalChain(svc.Name)
	}
	return "KUBE-EXT-" + iptables.Hash(iptables.Label(svc.Name)+svc.Name.Protocol.String()+policy.String())
}

// masquerade decides, for callers of the ClusterIPs that have policy, whose
// address is hidden. The chain it stands in has other callers too, so it looks at
// the address once more.
func (r *render) masquerade(svc sdk.Service, policy sdk.Policy) []iptables.Rule {
	var rules []iptables.Rule
	for _, f := range svc.Frontends {
		if !f.External() && f.Policy == policy {
			rules = append(rules, iptables.Words(to(svc, f), "-j", markOthers))
		}
	}
	return rules
}

// to is the words for packets that are sent to f.
func to(svc sdk.Service, f sdk.Frontend) iptables.Rule {
	p := svc.Name.Protocol.String()
	return iptables.Words("-d", f.Addr.Addr(), "-p", p, "-m", p, "--dport", f.Addr.Port())
}

// longestName is how many bytes the kernel's name of an interface may have.
const longestName = 15

// checkPods refuses names that no interface can have. A rule with one would be
// refused by iptables, and all others with it.
func checkPods(pods sdk.Pods) error {
	for field, name := range map[string]string{"bridgeInterface": pods.Bridge, "interfaceNamePrefix": pods.InterfacePrefix} {
		limit := longestName
		if field == "interfaceNamePrefix" {
			limit-- // iptables wants a plus sign behind it
		}
		if len(name) > limit || strings.ContainsAny(name, "/ \t\n\r\x00") {
			return &sdk.Refusal{Field: "detectLocal." + field, Why: fmt.Sprintf("%q is no name, or too long, for an interface", name), Try: fmt.Sprintf("a name of at most %d letters", limit)}
		}
	}
	return nil
}
