// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
)

var ourChains = []string{wayIn, nodePorts, notPod, postrouting, denied, near, guard, health, forward}

func isOurs(id iptables.ID) bool { return slices.Contains(ourChains, id.Chain) }

// isProxied reports whether a chain may be one of a kube-proxy in its ipvs mode.
func isProxied(id iptables.ID) bool {
	return slices.Contains(kubeProxyChains, id) || slices.Contains(kubeProxyShared, id)
}

// ruleConfig is what the rules of a family are: all chains are fixed.
func ruleConfig() rules.Config {
	return rules.Config{Mangle: true, IsOurs: isOurs, IsFixed: isOurs, IsBeside: isProxied, Role: ledRole, Rank: rank}
}

// ledRole is the role that jumps show while addresses are bound.
func ledRole(jumps []iptables.Jump) sdk.Role {
	role := sdk.Standby
	for _, j := range jumps {
		switch j.Rule.Target() {
		case wayIn:
			return sdk.Active
		case postrouting:
			role = sdk.Draining
		}
	}
	return role
}

// rank is the same for all chains: they are too few to be written in pieces.
func rank(iptables.Chain) int { return 0 }

// Chains that only kube-proxy in its ipvs mode has, and those that others have too:
// they are its own only while its KUBE-SERVICES looks at sets, or beside chains of the
// first kind is still empty: it writes rules last, and may have ended before.
var (
	kubeProxyChains = []iptables.ID{
		nat("KUBE-NODE-PORT"), nat("KUBE-LOAD-BALANCER"),
		filter("KUBE-NODE-PORT"), filter("KUBE-SOURCE-RANGES-FIREWALL"), filter("KUBE-IPVS-FILTER"), filter("KUBE-IPVS-OUT-FILTER"),
	}
	kubeProxyShared = []iptables.ID{
		nat("KUBE-SERVICES"), filter("KUBE-FORWARD"), filter("KUBE-PROXY-FIREWALL"),
	}
)

// relics is what removes the chains of a kube-proxy in its ipvs mode, and its jumps that lead
// to them.
func relics(t iptables.Tables) (p iptables.Plan) {
	chains := kubeProxy(t)
	for _, table := range []string{"filter", "nat"} {
		b, _ := t.Leftovers(table, func(id iptables.ID) bool { return slices.Contains(chains, id) })
		if !b.Empty() {
			p = append(p, b)
		}
	}
	return p
}

// kubeProxy finds the chains of a kube-proxy in its ipvs mode. One that is empty because a
// foreign rule has kept it is no sign of one.
func kubeProxy(t iptables.Tables) []iptables.ID {
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
