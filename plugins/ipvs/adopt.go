// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
)

var ourChains = []string{servicesChain, nodePorts, markNotPod, postrouting, denied, near, guard, health, forward}

func isOurs(id iptables.ID) bool { return slices.Contains(ourChains, id.Chain) }

// isProxied reports whether a chain may belong to kube-proxy in ipvs mode.
func isProxied(id iptables.ID) bool {
	return slices.Contains(kubeProxyChains, id) || slices.Contains(kubeProxyShared, id)
}

// ruleConfig returns the configuration of package rules. All chains are fixed.
func ruleConfig() rules.Config {
	return rules.Config{Mangle: true, IsOurs: isOurs, IsFixed: isOurs, IsBeside: isProxied, Role: shownRole, Rank: rank}
}

// shownRole returns the role that jumps imply while addresses are bound.
func shownRole(jumps []iptables.Jump) sdk.Role {
	role := sdk.Standby
	for _, j := range jumps {
		switch j.Rule.Target() {
		case servicesChain:
			return sdk.Active
		case postrouting:
			role = sdk.Draining
		}
	}
	return role
}

// rank is the same for all chains: there are too few to split a write.
func rank(iptables.Chain) int { return 0 }

// kubeProxyChains are chains that only kube-proxy in ipvs mode has. kubeProxyShared have names that other
// programs use too. They are kube-proxy's in ipvs mode if its KUBE-SERVICES matches sets, or if KUBE-SERVICES
// is empty beside one of kubeProxyChains: kube-proxy writes rules last and may have ended before.
var (
	kubeProxyChains = []iptables.ID{
		nat("KUBE-NODE-PORT"), nat("KUBE-LOAD-BALANCER"),
		filter("KUBE-NODE-PORT"), filter("KUBE-SOURCE-RANGES-FIREWALL"), filter("KUBE-IPVS-FILTER"), filter("KUBE-IPVS-OUT-FILTER"),
	}
	kubeProxyShared = []iptables.ID{
		nat("KUBE-SERVICES"), filter("KUBE-FORWARD"), filter("KUBE-PROXY-FIREWALL"),
	}
)

// kubeProxyLeftovers returns the plan that removes the chains of kube-proxy in ipvs mode and its jumps to them.
func kubeProxyLeftovers(t iptables.Tables) (p iptables.Plan) {
	chains := findKubeProxyChains(t)
	for _, table := range []string{"filter", "nat"} {
		b, _ := t.Leftovers(table, func(id iptables.ID) bool { return slices.Contains(chains, id) })
		if !b.Empty() {
			p = append(p, b)
		}
	}
	return p
}

// findKubeProxyChains returns the chains of kube-proxy in ipvs mode. An empty chain that exists only because a foreign
// rule leads to it does not count.
func findKubeProxyChains(t iptables.Tables) []iptables.ID {
	gone := func(id iptables.ID) bool { _, there := t[id]; return !there }
	chains := slices.DeleteFunc(slices.Clone(kubeProxyChains), gone)
	held := t.Held(func(id iptables.ID) bool { return slices.Contains(chains, id) })
	chains = slices.DeleteFunc(chains, func(id iptables.ID) bool { _, kept := held[id]; return kept && len(t[id]) == 0 })
	rules := t[nat("KUBE-SERVICES")]
	looks := slices.ContainsFunc(rules, func(r iptables.Rule) bool { return strings.Contains(string(r), "--match-set KUBE-") })
	if looks || len(rules) == 0 && len(chains) > 0 {
		chains = append(chains, slices.DeleteFunc(slices.Clone(kubeProxyShared), gone)...)
	}
	return chains
}
