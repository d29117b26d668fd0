// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftable"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// entrances are the chains between the base chains and the indexes, by their names in
// docs/nftables.md.
func (n nodeConfig) entrances() []nftable.Chain {
	return append(n.affinityChains(n.ip),
		n.remember(),
		n.pre(),
		nftable.Chain{Name: "out", Rules: append(n.echo(), nftable.Rule{to(nftnl.Jump("near"))}, nftable.Rule{to(nftnl.Goto("far"))})},
		n.lookUp(),
		n.lookUpNear(),
		n.post(),
		n.inside(),
		n.ofFrontends("admit", n.bit()),
		n.ofFrontends("forget", 0),
		nftable.Chain{Name: "hide", Rules: []nftable.Rule{{nftnl.Masquerade()}}},
		nftable.Chain{Name: "refuse", Rules: []nftable.Rule{
			{nftable.Proto(0), nftnl.Cmp(nftnl.Equal, 0, nftable.ProtoKey(sdk.TCP)), nftnl.Reset()},
			{nftnl.Unreachable(n.NFT())},
		}},
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
func (n nodeConfig) pre() nftable.Chain {
	c := nftable.Chain{Name: "pre", Rules: n.echo()}
	for _, pods := range n.fromPods() {
		c.Rules = append(c.Rules, append(pods, to(nftnl.Jump("near"))))
	}
	c.Rules = append(c.Rules, nftable.Rule{to(nftnl.Goto("far"))})
	return c
}

// echo has the node answer pings of ClusterIPs, by an address of its own. The interface by which
// a ping comes in may have none.
func (n nodeConfig) echo() []nftable.Rule {
	if !n.self.IsValid() {
		return nil
	}
	const byType = 1 // bytes of the header: ICMP's type
	return []nftable.Rule{{
		nftable.Proto(0), nftnl.Cmp(nftnl.Equal, 0, pick(n.ip, "\x01", "\x3a")),
		nftnl.Payload(nftnl.Transport, 0, byType, 0), nftnl.Cmp(nftnl.Equal, 0, pick(n.ip, "\x08", "\x80")),
		n.Daddr(0), nftnl.In("vips", 0),
		nftnl.Load(0, string(n.self.AsSlice())), nftnl.DNATAddr(n.NFT(), 0),
	}}
}

// lookUp finds the index for callers from elsewhere.
func (n nodeConfig) lookUp() nftable.Chain {
	c := nftable.Chain{Name: "far"}
	for _, p := range n.indexes(n.ip) {
		if !p.near {
			c.Rules = append(c.Rules, n.find(p)...)
		}
	}
	return c
}

// lookUpNear finds the index for pods of this node and the node itself, if they have one.
func (n nodeConfig) lookUpNear() nftable.Chain {
	c := nftable.Chain{Name: "near"}
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
func (n nodeConfig) find(p index) (all []nftable.Rule) {
	found := p.in("frontends", nftnl.Goto(p.of("gate")))
	if !p.ports {
		return []nftable.Rule{found}
	}
	for _, own := range n.toOwn(n.Daddr(0)) {
		all = append(all, append(own, found...))
	}
	return all
}

// toOwn returns the starts of rules for packets to addresses that take node ports, one for the set and one for
// each prefix. addr loads the address.
func (n nodeConfig) toOwn(addr nftnl.Expr) []nftable.Rule {
	all := []nftable.Rule{{addr, nftnl.In("own", 0)}}
	for _, p := range n.own {
		if !p.IsSingleIP() {
			all = append(all, nftable.Within(addr, p))
		}
	}
	return all
}

// fromPods are the words for packets that pods of this node send, one for each way to be one.
func (n nodeConfig) fromPods() []nftable.Rule {
	pods := n.node.Pods
	byName := func(name string) []nftable.Rule {
		return []nftable.Rule{{nftnl.Meta(nftnl.MetaIifName, 0), nftnl.Cmp(nftnl.Equal, 0, name)}}
	}
	switch {
	case pods.Bridge != "":
		return byName(nftable.Ifname(pods.Bridge))
	case pods.InterfacePrefix != "":
		return byName(pods.InterfacePrefix)
	}
	var all []nftable.Rule
	for _, c := range pods.CIDRs {
		if sdk.FamilyOf(c.Addr()) == n.Family {
			all = append(all, nftable.Within(n.Saddr(0), c))
		}
	}
	return all
}

// post decides whose address is hidden, of packets that have been translated.
func (n nodeConfig) post() nftable.Chain {
	p := indexes(n.ip)[0]
	w := n.Words()
	hide := to(nftnl.Goto("hide"))
	c := nftable.Chain{Name: "post", Rules: []nftable.Rule{
		nftable.IfUntranslated(nftnl.Accept),
		{to(nftnl.Jump("remember"))},
		{n.Saddr(0), n.Daddr(w), nftnl.In("hairpin", 0), hide},
		p.was("outside", hide),
		append(nftable.FromNode(), p.was("outside-local", hide)...),
		p.was("outside-local", to(nftnl.Accept)),
		p.was("frontends", n.OrigDaddr(0), nftnl.In("vips", 0), to(nftnl.Goto("inside"))), // the node may have it, too
	}}
	if n.has(p.node()) {
		for _, own := range n.toOwn(n.OrigDaddr(0)) {
			c.Rules = append(c.Rules,
				append(slices.Clone(own), p.node().was("outside", hide)...),
				append(append(nftable.FromNode(), own...), p.node().was("outside-local", hide)...))
		}
	}
	return c
}

// bit is the mark for masquerading, which iptables' FORWARD accepts (masquerade.Forward).
func (n nodeConfig) bit() uint32 { return 1 << (n.node.MasqueradeBit & 31) }

// ofFrontends is the chain that sets the bit in the mark of packets to frontends, or clears it.
func (n nodeConfig) ofFrontends(name string, bit uint32) nftable.Chain {
	set := []nftnl.Expr{
		nftnl.Meta(nftnl.MetaMark, 0), nftnl.Turn(0, nftable.Mark(^n.bit()), nftable.Mark(bit)), nftnl.SetMeta(nftnl.MetaMark, 0), to(nftnl.Return),
	}
	p := indexes(n.ip)[0]
	c := nftable.Chain{Name: name, Rules: []nftable.Rule{p.was("frontends", set...)}}
	if n.has(p.node()) {
		for _, own := range n.toOwn(n.OrigDaddr(0)) {
			c.Rules = append(c.Rules, append(own, p.node().was("frontends", set...)...))
		}
	}
	return c
}

// inside decides whose address is hidden, of callers of ClusterIPs.
func (n nodeConfig) inside() nftable.Chain {
	c := nftable.Chain{Name: "inside"}
	hide := nftable.Rule{to(nftnl.Goto("hide"))}
	switch pods := n.fromPods(); {
	case n.node.MasqueradeAll:
		c.Rules = []nftable.Rule{hide}
	case len(pods) > 0:
		for _, p := range pods {
			c.Rules = append(c.Rules, append(p, to(nftnl.Accept)))
		}
		c.Rules = append(c.Rules, hide)
	}
	return c
}

// invalid drops what conntrack cannot place: its answer would be reset.
func (n nodeConfig) invalid() nftable.Chain {
	c := nftable.Chain{Name: "invalid"}
	if !n.liberal {
		c.Rules = []nftable.Rule{append(nftable.OfState(nftable.StateInvalid), to(nftnl.Drop))}
	}
	return c
}

// looped drops what is sent to an external address, and would leave by the uplink by which it came in: a router that
// sends such packets to this node would get them back until they are too old. Its neighbours may be called.
func (n nodeConfig) looped() nftable.Chain {
	c := nftable.Chain{Name: "looped"}
	for _, up := range n.uplinks {
		through := nftable.Rule{
			nftnl.Meta(nftnl.MetaIifName, 0), nftnl.Cmp(nftnl.Equal, 0, nftable.Ifname(up.Name)),
			nftnl.Meta(nftnl.MetaOifName, 0), nftnl.Cmp(nftnl.Equal, 0, nftable.Ifname(up.Name)),
		}
		for _, p := range up.OnLink {
			c.Rules = append(c.Rules, append(append(slices.Clone(through), nftable.Within(n.Daddr(0), p)...), to(nftnl.Return)))
		}
		c.Rules = append(c.Rules, append(through, n.Daddr(0), nftnl.In("external", 0), to(nftnl.Drop)))
	}
	return c
}

// refused answers for ports of ClusterIPs that no Service has, and drops what is sent to
// addresses that are no Service's yet. What has found its endpoint passes, and so does what is
// sent to an address that the node has itself.
func (n nodeConfig) refused() nftable.Chain {
	c := nftable.Chain{Name: "refused", Rules: []nftable.Rule{
		nftable.IfTranslated(nftnl.Return),
		{nftnl.Fib(0), nftnl.Cmp(nftnl.Equal, 0, nftable.Mark(nftnl.Local)), to(nftnl.Return)},
		append(nftable.OfState(nftable.StateNew), n.Daddr(0), nftnl.In("vips", 0), to(nftnl.Goto("refuse"))),
	}}
	for _, cidr := range n.node.ServiceCIDRs {
		if sdk.FamilyOf(cidr.Addr()) == n.Family && cidr.Bits() > 0 {
			c.Rules = append(c.Rules, append(append(nftable.OfState(nftable.StateNew), nftable.Within(n.Daddr(0), cidr)...), to(nftnl.Drop)))
		}
	}
	c.Rules = append(c.Rules, nftable.Rule{to(nftnl.Goto("looped"))})
	return c
}
