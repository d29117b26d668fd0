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

// A nodeConfig has the inputs of the rules that do not depend on Services.
type nodeConfig struct {
	family    sdk.Family
	node      sdk.Node
	localhost bool // node ports are served on 127.0.0.1 too
	liberal   bool // conntrack accepts packets outside the TCP window (tcp_be_liberal)
	canCount  bool // rules can count packets in nfacct accounts

	bound   []netip.Prefix // addresses of the node that an ipvs dataplane bound: they take no node ports
	uplinks []flows.Uplink // interfaces of the node's default routes
}

// setNode renders the fixed chains, and the rules that the roots of the trees have besides those of the tree.
func (s *familyRules) setNode(n nodeConfig) {
	s.node = n
	s.SetFixed(n.fixedChains())
	s.SetRoot(servedAddrs, nil, n.nodePortRules(nodePorts))
	translated := append(n.localhostCountRules(), "-m conntrack --ctstate DNAT -j RETURN") // nat has found an endpoint
	s.SetRoot(unservedAddrs, translated, append(flows.Looped(n.uplinks, looped), n.nodePortRules(externalServices)...))
}

// fixedChains returns the chains that do not depend on Services. The roots of trees are not among them: setNode
// sets the rules before and after the tree.
func (n nodeConfig) fixedChains() []iptables.Chain {
	fixed := []iptables.Chain{
		{ID: nat(markNotPod), Rules: masquerade.Others(n.node, n.family)},
		{ID: filter(denied), Rules: []iptables.Rule{"-j DROP"}},
		{ID: filter(noLocalEndpoint), Rules: []iptables.Rule{"-j DROP"}},
		{ID: filter(noEndpoint), Rules: []iptables.Rule{iptables.Refused(n.family)}},
		{ID: filter(foreignPort), Rules: []iptables.Rule{"-j DROP"}},
		{ID: filter(forward), Rules: n.forwardRules()},
	}
	if n.localhost {
		fixed = append(fixed, iptables.Chain{ID: filter(localnetGuard), Rules: []iptables.Rule{
			`! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`}})
	}
	return fixed
}

// localhostCountRules returns the rule that counts connections to node ports on 127.0.0.1. It matches after nat has
// chosen an endpoint, because such connections are always marked for masquerading.
func (n nodeConfig) localhostCountRules() []iptables.Rule {
	if !n.localhost || !n.canCount {
		return nil
	}
	return []iptables.Rule{iptables.Words("-m conntrack --ctorigdst 127.0.0.0/8 -m mark --mark", iptables.OneBit(n.node.MasqueradeBit), accountMatch(localhostAccepted))}
}

// forwardRules returns the rules of KUBE-FORWARD, which accept packets that a FORWARD policy of DROP would
// stop. A packet in conntrack state INVALID is dropped before: it would reach the client untranslated, and the
// client would reset the connection.
func (n nodeConfig) forwardRules() []iptables.Rule {
	rules := iptables.Forwarded(n.node)
	if n.liberal {
		return rules
	}
	count := iptables.Rule("")
	if n.canCount {
		count = accountMatch(invalidDropped)
	}
	return append([]iptables.Rule{iptables.Words("-m conntrack --ctstate INVALID", count, "-j DROP")}, rules...)
}

// nodePortRules returns the rules at the end of a root that send packets for the node's own addresses to chain,
// if the address takes node ports. They match --dst-type LOCAL, so a change of the node's addresses needs no
// change of rules.
func (n nodeConfig) nodePortRules(chain string) []iptables.Rule {
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
	var before []iptables.Rule // addresses that an ipvs dataplane bound take no node ports
	for _, p := range n.bound {
		before = append(before, iptables.Words("-d", p, "-j RETURN"))
	}
	return append(before, rules...)
}

// jumps returns the jumps from built-in chains to ours that role needs. Without them our chains see no packets.
func (n nodeConfig) jumps(role sdk.Role) []iptables.Jump {
	forwardJump := iptables.Jump{At: filter("FORWARD"), Rule: `-m comment --comment "kubernetes forwarding rules" -j ` + forward}
	switch role {
	case sdk.Active:
		return append([]iptables.Jump{ // each jump is inserted at the top, so the last one of a chain is evaluated first
			{At: filter("INPUT"), Rule: newFlows},
			{At: filter("INPUT"), Rule: `-m comment --comment "kubernetes health check service ports" -j ` + nodePorts},
			{At: filter("FORWARD"), Rule: newFlows},
			forwardJump,
			{At: filter("OUTPUT"), Rule: newFlows},
			{At: nat("PREROUTING"), Rule: `-m comment --comment "kubernetes service portals" -j ` + services},
			{At: nat("OUTPUT"), Rule: `-m comment --comment "kubernetes service portals" -j ` + services},
		}, n.guardJumps()...)
	case sdk.Draining:
		return append([]iptables.Jump{forwardJump}, n.guardJumps()...)
	}
	return nil
}

// guardJumps returns the jumps to the guard. They stay in place for as long as route_localnet may be set.
func (n nodeConfig) guardJumps() []iptables.Jump {
	if !n.localhost {
		return nil
	}
	return []iptables.Jump{{At: filter("INPUT"), Rule: "-j " + localnetGuard}, {At: filter("OUTPUT"), Rule: "-j " + localnetGuard}}
}

// updateJumps sets the jumps that the planned role needs. Standby needs none, but existing jumps to the guard
// stay: an earlier Active role may have set route_localnet.
func (s *familyRules) updateJumps() {
	jumps := s.node.jumps(s.Planned())
	if s.Planned() == sdk.Standby {
		jumps = slices.DeleteFunc(s.node.guardJumps(), func(j iptables.Jump) bool { return !s.HasJump(j) })
	}
	s.SetJumps(jumps, s.node.jumps(sdk.Active))
}

const newFlows = `-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j ` + services
