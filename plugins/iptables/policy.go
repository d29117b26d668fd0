// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// external is the way in from outside the cluster, for frontends that have policy.
// Under the Local policy a caller on this node still reaches the whole cluster, as
// if it went out and came back in.
func (r *render) external(svc sdk.Service, policy sdk.Policy) {
	id := nat(entryChain(svc, policy))
	all := clusterChain(svc.Name)
	if policy == sdk.Cluster {
		r.chain(id, iptables.Words("-j", markMasq), iptables.Words("-j", all))
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
	r.chain(id, rules...)
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
