// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// A nodeConfig is what the rules of one family follow with no Service at all.
type nodeConfig struct {
	family    sdk.Family
	node      sdk.Node
	localhost bool // node ports answer on 127.0.0.1 too
	liberal   bool // the kernel takes packets outside the TCP window for valid
	counted   bool // rules can count in accounts

	bound   []netip.Prefix // the node's addresses that take no node ports
	uplinks []flows.Uplink // by which its default routes lead
}

// setNode writes the fixed chains, and what stands beside the trees in their roots.
func (s *familyRules) setNode(n nodeConfig) {
	s.node = n
	s.SetFixed(n.chains())
	s.SetRoot(servedAddrs, nil, n.toNode(nodePorts))
	translated := append(n.localhostCount(), "-m conntrack --ctstate DNAT -j RETURN") // nat has found an endpoint
	s.SetRoot(unservedAddrs, translated, append(flows.Looped(n.uplinks, looped), n.toNode(turnedAway)...))
}

// chains are the fixed ones. What the trees hang in has only its head or tail here.
func (n nodeConfig) chains() []iptables.Chain {
	fixed := []iptables.Chain{
		{ID: nat(markOthers), Rules: masquerade.Others(n.node, n.family)},
		{ID: filter(denied), Rules: []iptables.Rule{"-j DROP"}},
		{ID: filter(noneLocal), Rules: []iptables.Rule{"-j DROP"}},
		{ID: filter(unserved), Rules: []iptables.Rule{iptables.Refused(n.family)}},
		{ID: filter(foreign), Rules: []iptables.Rule{"-j DROP"}},
		{ID: filter(forward), Rules: n.forward()},
	}
	if n.localhost {
		fixed = append(fixed, iptables.Chain{ID: filter(guard), Rules: []iptables.Rule{
			`! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`}})
	}
	return fixed
}

// localhostCount counts the connections to node ports of 127.0.0.1, once nat has found an
// endpoint: they are always marked for masquerading.
func (n nodeConfig) localhostCount() []iptables.Rule {
	if !n.localhost || !n.counted {
		return nil
	}
	return []iptables.Rule{iptables.Words("-m conntrack --ctorigdst 127.0.0.0/8 -m mark --mark", iptables.OneBit(n.node.MasqueradeBit), counted(localhostAccepted))}
}

// forward lets on their way what a FORWARD policy of DROP would stop. A packet
// that conntrack cannot place would have its answer reset, so it goes first.
func (n nodeConfig) forward() []iptables.Rule {
	rules := iptables.Forwarded(n.node)
	if n.liberal {
		return rules
	}
	count := iptables.Rule("")
	if n.counted {
		count = counted(invalidDropped)
	}
	return append([]iptables.Rule{iptables.Words("-m conntrack --ctstate INVALID", count, "-j DROP")}, rules...)
}

// toNode are the rules, at the end of a way in, that lead packets for the node's
// own addresses to chain, if the address takes node ports. The kernel knows its
// addresses better than we do, so a change of them needs no change here.
func (n nodeConfig) toNode(chain string) []iptables.Rule {
	var rules []iptables.Rule
	for _, p := range n.node.NodePorts {
		if sdk.FamilyOf(p.Addr()) != n.family {
			continue
		}
		if len(rules) == 0 && !n.localhost {
			rules = append(rules, iptables.Words("-d", iptables.Loopback(n.family), "-j RETURN"))
		}
		rules = append(rules, iptables.Words(iptables.To(p), "-m addrtype --dst-type LOCAL -j", chain))
	}
	if len(rules) == 0 {
		return nil
	}
	var before []iptables.Rule // what a dataplane bound passes the node ports by
	for _, p := range n.bound {
		before = append(before, iptables.Words("-d", p, "-j RETURN"))
	}
	return append(before, rules...)
}

// jumps lead packets into our chains. Without them we catch nothing.
func (n nodeConfig) jumps(role sdk.Role) []iptables.Jump {
	onItsWay := iptables.Jump{At: filter("FORWARD"), Rule: `-m comment --comment "kubernetes forwarding rules" -j ` + forward}
	switch role {
	case sdk.Active:
	case sdk.Draining:
		return n.guarded([]iptables.Jump{onItsWay})
	default:
		return nil
	}
	return n.guarded([]iptables.Jump{ // each is put at the top, so the last of a chain goes first
		{At: filter("INPUT"), Rule: newFlows},
		{At: filter("INPUT"), Rule: `-m comment --comment "kubernetes health check service ports" -j ` + nodePorts},
		{At: filter("FORWARD"), Rule: newFlows},
		onItsWay,
		{At: filter("OUTPUT"), Rule: newFlows},
		{At: nat("PREROUTING"), Rule: `-m comment --comment "kubernetes service portals" -j ` + services},
		{At: nat("OUTPUT"), Rule: `-m comment --comment "kubernetes service portals" -j ` + services},
	})
}

// guarded adds the way to the guard, which stays for as long as the kernel may
// route 127.0.0.0/8.
func (n nodeConfig) guarded(jumps []iptables.Jump) []iptables.Jump {
	if n.localhost {
		jumps = append(jumps, toGuard...)
	}
	return jumps
}

var toGuard = []iptables.Jump{{At: filter("INPUT"), Rule: "-j " + guard}, {At: filter("OUTPUT"), Rule: "-j " + guard}}

// leads are the jumps that role needs. In Standby there are none, but the way to the guard
// stays if it is there: what was Active may have made the kernel route 127.0.0.0/8.
func (s *familyRules) leads(role sdk.Role) []iptables.Jump {
	if role == sdk.Standby {
		return slices.DeleteFunc(s.node.guarded(nil), func(j iptables.Jump) bool { return !s.HasJump(j) })
	}
	return s.node.jumps(role)
}

const newFlows = `-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j ` + services
