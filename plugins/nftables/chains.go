// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// Chains that count packets before they drop or reject them, one for each reason.
const (
	sourceRange          = "source-range"
	localWithoutEndpoint = "local-without-endpoint"
	noEndpoint           = "no-endpoint"
	foreignPort          = "foreign-port"
)

var reasons = map[string]string{
	sourceRange: sdk.DropSourceRange, localWithoutEndpoint: sdk.DropLocalWithoutEndpoint, noEndpoint: sdk.DropNoEndpoint, foreignPort: sdk.DropForeignPort,
}

// packetChains returns the chains between the base chains and those of the indexes. The package comment shows
// them by name.
func (n nodeConfig) packetChains() []chain {
	return append(n.affinityChains(n.ip),
		n.rememberChain(),
		n.preChain(),
		chain{Name: "out", Rules: []rule{{verdict(nftnl.Jump("near"))}, {verdict(nftnl.Goto("far"))}}},
		n.farChain(),
		n.nearChain(),
		n.postChain(),
		n.insideChain(),
		n.markChain("admit", n.bit()),
		n.markChain("forget", 0),
		chain{Name: "hide", Rules: []rule{{nftnl.Masquerade()}}},
		chain{Name: "refuse", Rules: []rule{
			{loadProto(0), nftnl.Cmp(nftnl.Equal, 0, protocolNumbers[sdk.TCP]), nftnl.Reset()},
			{nftnl.Unreachable(n.NFT())},
		}},
		chain{Name: sourceRange, Rules: []rule{{nftnl.Counter(), verdict(nftnl.Drop)}}},
		chain{Name: localWithoutEndpoint, Rules: []rule{{nftnl.Counter(), verdict(nftnl.Drop)}}},
		chain{Name: noEndpoint, Rules: []rule{{nftnl.Counter(), verdict(nftnl.Goto("refuse"))}}},
		chain{Name: foreignPort, Rules: []rule{{nftnl.Counter(), n.Daddr(0), nftnl.In("vips", 0), verdict(nftnl.Goto("refuse"))}, {verdict(nftnl.Drop)}}},
		n.invalidChain(),
		n.refusedChain(),
		n.loopedChain(),
	)
}

// withPorts returns the index of node ports that corresponds to p.
func (p index) withPorts() index {
	p.ports = true
	return p
}

// preChain returns the chain for packets that arrive from pods and other hosts.
func (n nodeConfig) preChain() chain {
	c := chain{Name: "pre"}
	for _, pods := range n.matchPods() {
		c.Rules = append(c.Rules, append(pods, verdict(nftnl.Jump("near"))))
	}
	c.Rules = append(c.Rules, rule{verdict(nftnl.Goto("far"))})
	return c
}

// farChain returns the chain that finds the frontend for clients outside the node.
func (n nodeConfig) farChain() chain {
	c := chain{Name: "far"}
	for _, p := range n.indexes(n.ip) {
		if !p.near {
			c.Rules = append(c.Rules, n.frontendRules(p)...)
		}
	}
	return c
}

// nearChain returns the chain that finds a near frontend for pods of this node and the node itself.
func (n nodeConfig) nearChain() chain {
	c := chain{Name: "near"}
	for _, p := range n.indexes(n.ip) {
		switch {
		case p.near && p.ports:
			c.Rules = append(c.Rules, indexes(n.ip)[0].match("frontends", nftnl.Return))
			c.Rules = append(c.Rules, n.frontendRules(p)...)
		case p.near:
			c.Rules = append(c.Rules, n.frontendRules(p)...)
		}
	}
	return c
}

// frontendRules returns the rules that send packets to a frontend of p to the gate of p. A node port matches
// only on the node's own addresses, and after all frontends with an address.
func (n nodeConfig) frontendRules(p index) (all []rule) {
	found := p.match("frontends", nftnl.Goto(p.name("gate")))
	if !p.ports {
		return []rule{found}
	}
	for _, own := range n.matchOwn(n.Daddr(0)) {
		all = append(all, append(own, found...))
	}
	return all
}

// matchOwn returns the starts of rules for packets to addresses that take node ports: one for the set and one
// for each prefix that is longer than one address. addr loads the address.
func (n nodeConfig) matchOwn(addr nftnl.Expr) []rule {
	all := []rule{{addr, nftnl.In("own", 0)}}
	for _, p := range n.own {
		if !p.IsSingleIP() {
			all = append(all, matchPrefix(addr, p))
		}
	}
	return all
}

// matchPods returns the starts of rules for packets from pods of this node, one for each way to recognize a
// pod.
func (n nodeConfig) matchPods() []rule {
	pods := n.node.Pods
	byName := func(name string) []rule {
		return []rule{{nftnl.Meta(nftnl.MetaIifName, 0), nftnl.Cmp(nftnl.Equal, 0, name)}}
	}
	switch {
	case pods.Bridge != "":
		return byName(ifname(pods.Bridge))
	case pods.InterfacePrefix != "":
		return byName(pods.InterfacePrefix)
	}
	var all []rule
	for _, c := range pods.CIDRs {
		if sdk.FamilyOf(c.Addr()) == n.Family {
			all = append(all, matchPrefix(n.Saddr(0), c))
		}
	}
	return all
}

// postChain returns the chain that decides whether a translated packet is masqueraded.
func (n nodeConfig) postChain() chain {
	p := indexes(n.ip)[0]
	w := n.Words()
	hide := verdict(nftnl.Goto("hide"))
	c := chain{Name: "post", Rules: []rule{
		ifUntranslated(nftnl.Accept),
		{verdict(nftnl.Jump("remember"))},
		{n.Saddr(0), n.Daddr(w), nftnl.In("hairpin", 0), hide},
		p.matchOriginal("outside", hide),
		append(matchFromNode(), p.matchOriginal("outside-local", hide)...),
		p.matchOriginal("outside-local", verdict(nftnl.Accept)),
		p.matchOriginal("frontends", n.OrigDaddr(0), nftnl.In("vips", 0), verdict(nftnl.Goto("inside"))), // a VIP may also be an address of the node
	}}
	if n.has(p.withPorts()) {
		for _, own := range n.matchOwn(n.OrigDaddr(0)) {
			c.Rules = append(c.Rules,
				append(slices.Clone(own), p.withPorts().matchOriginal("outside", hide)...),
				append(append(matchFromNode(), own...), p.withPorts().matchOriginal("outside-local", hide)...))
		}
	}
	return c
}

// bit returns the mark for masquerading, which iptables' FORWARD accepts (masquerade.Forward).
func (n nodeConfig) bit() uint32 { return 1 << (n.node.MasqueradeBit & 31) }

// markChain returns a chain that sets the masquerade bit in the mark of packets to frontends to the given
// value.
func (n nodeConfig) markChain(name string, bit uint32) chain {
	set := []nftnl.Expr{
		nftnl.Meta(nftnl.MetaMark, 0), nftnl.Turn(0, hostOrder(^n.bit()), hostOrder(bit)), nftnl.SetMeta(nftnl.MetaMark, 0), verdict(nftnl.Return),
	}
	p := indexes(n.ip)[0]
	c := chain{Name: name, Rules: []rule{p.matchOriginal("frontends", set...)}}
	if n.has(p.withPorts()) {
		for _, own := range n.matchOwn(n.OrigDaddr(0)) {
			c.Rules = append(c.Rules, append(own, p.withPorts().matchOriginal("frontends", set...)...))
		}
	}
	return c
}

// insideChain returns the chain that decides which clients of ClusterIPs are masqueraded.
func (n nodeConfig) insideChain() chain {
	c := chain{Name: "inside"}
	hide := rule{verdict(nftnl.Goto("hide"))}
	switch pods := n.matchPods(); {
	case n.node.MasqueradeAll:
		c.Rules = []rule{hide}
	case len(pods) > 0:
		for _, p := range pods {
			c.Rules = append(c.Rules, append(p, verdict(nftnl.Accept)))
		}
		c.Rules = append(c.Rules, hide)
	}
	return c
}

// invalidChain returns the chain that drops packets in conntrack state INVALID. They would reach the client
// untranslated, and the client would reset the connection.
func (n nodeConfig) invalidChain() chain {
	c := chain{Name: "invalid"}
	if !n.liberal {
		c.Rules = []rule{append(matchState(stateInvalid), verdict(nftnl.Drop))}
	}
	return c
}

// loopedChain returns the chain that drops packets to an external address that would leave by the uplink on
// which they arrived. A router that sends such packets to this node would get them back until their TTL
// expires. Neighbours on the uplink's own prefixes stay reachable.
func (n nodeConfig) loopedChain() chain {
	c := chain{Name: "looped"}
	for _, up := range n.uplinks {
		through := rule{
			nftnl.Meta(nftnl.MetaIifName, 0), nftnl.Cmp(nftnl.Equal, 0, ifname(up.Name)),
			nftnl.Meta(nftnl.MetaOifName, 0), nftnl.Cmp(nftnl.Equal, 0, ifname(up.Name)),
		}
		for _, p := range up.OnLink {
			c.Rules = append(c.Rules, append(append(slices.Clone(through), matchPrefix(n.Daddr(0), p)...), verdict(nftnl.Return)))
		}
		c.Rules = append(c.Rules, append(through, n.Daddr(0), nftnl.In("external", 0), verdict(nftnl.Goto(foreignPort))))
	}
	return c
}

// refusedChain returns the chain that rejects packets to ports of ClusterIPs that no Service has, and drops
// packets to addresses of ServiceCIDRs that no Service has yet. Translated packets, and packets to an address
// of the node, return.
func (n nodeConfig) refusedChain() chain {
	c := chain{Name: "refused", Rules: []rule{
		ifTranslated(nftnl.Return),
		{nftnl.Fib(0), nftnl.Cmp(nftnl.Equal, 0, hostOrder(nftnl.Local)), verdict(nftnl.Return)},
		append(matchState(stateNew), n.Daddr(0), nftnl.In("vips", 0), verdict(nftnl.Goto(foreignPort))),
	}}
	for _, cidr := range n.node.ServiceCIDRs {
		if sdk.FamilyOf(cidr.Addr()) == n.Family && cidr.Bits() > 0 {
			c.Rules = append(c.Rules, append(append(matchState(stateNew), matchPrefix(n.Daddr(0), cidr)...), verdict(nftnl.Goto(foreignPort))))
		}
	}
	c.Rules = append(c.Rules, rule{verdict(nftnl.Goto("looped"))})
	return c
}
