// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// The chains that count what they drop or reject: one for each reason.
const (
	sourceRange  = "source-range"
	localWithout = "local-without-endpoint"
	noEndpoint   = "no-endpoint"
	foreignPort  = "foreign-port"
)

var reasons = map[string]string{
	sourceRange: sdk.DropSourceRange, localWithout: sdk.DropLocalWithoutEndpoint, noEndpoint: sdk.DropNoEndpoint, foreignPort: sdk.DropForeignPort,
}

// entrances are the chains between the base chains and the indexes, by their names in
// the package comment.
func (n nodeConfig) entrances() []chain {
	return append(n.affinityChains(n.ip),
		n.remember(),
		n.pre(),
		chain{Name: "out", Rules: append(n.echo(), rule{to(nftnl.Jump("near"))}, rule{to(nftnl.Goto("far"))})},
		n.lookUp(),
		n.lookUpNear(),
		n.post(),
		n.inside(),
		n.ofFrontends("admit", n.bit()),
		n.ofFrontends("forget", 0),
		chain{Name: "hide", Rules: []rule{{nftnl.Masquerade()}}},
		chain{Name: "refuse", Rules: []rule{
			{loadProto(0), nftnl.Cmp(nftnl.Equal, 0, protoKey(sdk.TCP)), nftnl.Reset()},
			{nftnl.Unreachable(n.NFT())},
		}},
		chain{Name: sourceRange, Rules: []rule{{nftnl.Counter(), to(nftnl.Drop)}}},
		chain{Name: localWithout, Rules: []rule{{nftnl.Counter(), to(nftnl.Drop)}}},
		chain{Name: noEndpoint, Rules: []rule{{nftnl.Counter(), to(nftnl.Goto("refuse"))}}},
		chain{Name: foreignPort, Rules: []rule{{nftnl.Counter(), n.Daddr(0), nftnl.In("vips", 0), to(nftnl.Goto("refuse"))}, {to(nftnl.Drop)}}},
		n.invalid(),
		n.refused(),
		n.looped(),
	)
}

// node is the index of node ports that belongs to one of addresses.
func (p index) node() index {
	p.ports = true
	return p
}

// pre is the way in for packets of others.
func (n nodeConfig) pre() chain {
	c := chain{Name: "pre", Rules: n.echo()}
	for _, pods := range n.fromPods() {
		c.Rules = append(c.Rules, append(pods, to(nftnl.Jump("near"))))
	}
	c.Rules = append(c.Rules, rule{to(nftnl.Goto("far"))})
	return c
}

// echo has the node answer pings of ClusterIPs, by an address of its own. The interface by which
// a ping comes in may have none.
func (n nodeConfig) echo() []rule {
	if !n.self.IsValid() {
		return nil
	}
	const byType = 1 // bytes of the header: ICMP's type
	return []rule{{
		loadProto(0), nftnl.Cmp(nftnl.Equal, 0, pick(n.Family, "\x01", "\x3a")),
		nftnl.Payload(nftnl.Transport, 0, byType, 0), nftnl.Cmp(nftnl.Equal, 0, pick(n.Family, "\x08", "\x80")),
		n.Daddr(0), nftnl.In("vips", 0),
		nftnl.Load(0, string(n.self.AsSlice())), nftnl.DNATAddr(n.NFT(), 0),
	}}
}

// lookUp finds the index for callers from elsewhere.
func (n nodeConfig) lookUp() chain {
	c := chain{Name: "far"}
	for _, p := range n.indexes(n.ip) {
		if !p.near {
			c.Rules = append(c.Rules, n.find(p)...)
		}
	}
	return c
}

// lookUpNear finds the index for pods of this node and the node itself, if they have one.
func (n nodeConfig) lookUpNear() chain {
	c := chain{Name: "near"}
	for _, p := range n.indexes(n.ip) {
		switch {
		case p.near && p.ports:
			c.Rules = append(c.Rules, indexes(n.ip)[0].in("frontends", nftnl.Return))
			c.Rules = append(c.Rules, n.find(p)...)
		case p.near:
			c.Rules = append(c.Rules, n.find(p)...)
		}
	}
	return c
}

// find leads what is sent to a frontend to its index. A node port is looked for at the node's
// own addresses, and after all frontends with an address.
func (n nodeConfig) find(p index) (all []rule) {
	found := p.in("frontends", nftnl.Goto(p.of("gate")))
	if !p.ports {
		return []rule{found}
	}
	for _, own := range n.toOwn(n.Daddr(0)) {
		all = append(all, append(own, found...))
	}
	return all
}

// toOwn returns the starts of rules for packets to addresses that take node ports, one for the set and one for
// each prefix. addr loads the address.
func (n nodeConfig) toOwn(addr nftnl.Expr) []rule {
	all := []rule{{addr, nftnl.In("own", 0)}}
	for _, p := range n.own {
		if !p.IsSingleIP() {
			all = append(all, within(addr, p))
		}
	}
	return all
}

// fromPods are the words for packets that pods of this node send, one for each way to be one.
func (n nodeConfig) fromPods() []rule {
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
			all = append(all, within(n.Saddr(0), c))
		}
	}
	return all
}

// post decides whose address is hidden, of packets that have been translated.
func (n nodeConfig) post() chain {
	p := indexes(n.ip)[0]
	w := n.Words()
	hide := to(nftnl.Goto("hide"))
	c := chain{Name: "post", Rules: []rule{
		ifUntranslated(nftnl.Accept),
		{to(nftnl.Jump("remember"))},
		{n.Saddr(0), n.Daddr(w), nftnl.In("hairpin", 0), hide},
		p.was("outside", hide),
		append(fromNode(), p.was("outside-local", hide)...),
		p.was("outside-local", to(nftnl.Accept)),
		p.was("frontends", n.OrigDaddr(0), nftnl.In("vips", 0), to(nftnl.Goto("inside"))), // the node may have it, too
	}}
	if n.has(p.node()) {
		for _, own := range n.toOwn(n.OrigDaddr(0)) {
			c.Rules = append(c.Rules,
				append(slices.Clone(own), p.node().was("outside", hide)...),
				append(append(fromNode(), own...), p.node().was("outside-local", hide)...))
		}
	}
	return c
}

// bit is the mark for masquerading, which iptables' FORWARD accepts (masquerade.Forward).
func (n nodeConfig) bit() uint32 { return 1 << (n.node.MasqueradeBit & 31) }

// ofFrontends is the chain that sets the bit in the mark of packets to frontends, or clears it.
func (n nodeConfig) ofFrontends(name string, bit uint32) chain {
	set := []nftnl.Expr{
		nftnl.Meta(nftnl.MetaMark, 0), nftnl.Turn(0, hostOrder(^n.bit()), hostOrder(bit)), nftnl.SetMeta(nftnl.MetaMark, 0), to(nftnl.Return),
	}
	p := indexes(n.ip)[0]
	c := chain{Name: name, Rules: []rule{p.was("frontends", set...)}}
	if n.has(p.node()) {
		for _, own := range n.toOwn(n.OrigDaddr(0)) {
			c.Rules = append(c.Rules, append(own, p.node().was("frontends", set...)...))
		}
	}
	return c
}

// inside decides whose address is hidden, of callers of ClusterIPs.
func (n nodeConfig) inside() chain {
	c := chain{Name: "inside"}
	hide := rule{to(nftnl.Goto("hide"))}
	switch pods := n.fromPods(); {
	case n.node.MasqueradeAll:
		c.Rules = []rule{hide}
	case len(pods) > 0:
		for _, p := range pods {
			c.Rules = append(c.Rules, append(p, to(nftnl.Accept)))
		}
		c.Rules = append(c.Rules, hide)
	}
	return c
}

// invalid drops what conntrack cannot place: its answer would be reset.
func (n nodeConfig) invalid() chain {
	c := chain{Name: "invalid"}
	if !n.liberal {
		c.Rules = []rule{append(ofState(stateInvalid), to(nftnl.Drop))}
	}
	return c
}

// looped drops what is sent to an external address, and would leave by the uplink by which it came in: a router that
// sends such packets to this node would get them back until they are too old. Its neighbours may be called.
func (n nodeConfig) looped() chain {
	c := chain{Name: "looped"}
	for _, up := range n.uplinks {
		through := rule{
			nftnl.Meta(nftnl.MetaIifName, 0), nftnl.Cmp(nftnl.Equal, 0, ifname(up.Name)),
			nftnl.Meta(nftnl.MetaOifName, 0), nftnl.Cmp(nftnl.Equal, 0, ifname(up.Name)),
		}
		for _, p := range up.OnLink {
			c.Rules = append(c.Rules, append(append(slices.Clone(through), within(n.Daddr(0), p)...), to(nftnl.Return)))
		}
		c.Rules = append(c.Rules, append(through, n.Daddr(0), nftnl.In("external", 0), to(nftnl.Goto(foreignPort))))
	}
	return c
}

// refused answers for ports of ClusterIPs that no Service has, and drops what is sent to
// addresses that are no Service's yet. What has found its endpoint passes, and so does what is
// sent to an address that the node has itself.
func (n nodeConfig) refused() chain {
	c := chain{Name: "refused", Rules: []rule{
		ifTranslated(nftnl.Return),
		{nftnl.Fib(0), nftnl.Cmp(nftnl.Equal, 0, hostOrder(nftnl.Local)), to(nftnl.Return)},
		append(ofState(stateNew), n.Daddr(0), nftnl.In("vips", 0), to(nftnl.Goto(foreignPort))),
	}}
	for _, cidr := range n.node.ServiceCIDRs {
		if sdk.FamilyOf(cidr.Addr()) == n.Family && cidr.Bits() > 0 {
			c.Rules = append(c.Rules, append(append(ofState(stateNew), within(n.Daddr(0), cidr)...), to(nftnl.Goto(foreignPort))))
		}
	}
	c.Rules = append(c.Rules, rule{to(nftnl.Goto("looped"))})
	return c
}
