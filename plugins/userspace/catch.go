// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// This file says which rules lead a frontend's packets to the relay, and which
// turn away those that are not to be let in. The chains that they stand in, and
// what is there without any frontend, are in frame.go.

// A line is one rule in one chain.
type line struct {
	in   iptables.ID
	rule iptables.Rule
}

// The chains that frontends have lines in. The order of their lines means nothing:
// where it would, there are two chains.
var (
	portalsIn   = nat("KUBE-PORTALS-IN")         // what comes to the node, to addresses of Services
	portalsOut  = nat("KUBE-PORTALS-OUT")        // what the node sends there
	portalsShut = nat("KUBE-PORTALS-SHUT")       // what of it no node port may have
	portsIn     = nat("KUBE-NODEPORT-CONTAINER") // what comes to addresses that take node ports
	portsOut    = nat("KUBE-NODEPORT-HOST")      // what the node sends there

	portalsReject = filter("KUBE-PORTALS-REJECT") // what is to be turned away at once
	portalsDrop   = filter("KUBE-PORTALS-DROP")   // and what without a word
	portsReject   = filter("KUBE-NODEPORT-REJECT")
	portsDrop     = filter("KUBE-NODEPORT-DROP")
	admit         = filter("KUBE-PORTALS-ADMIT")  // what reaches sockets of ours by our rules
	refuse        = filter("KUBE-PORTALS-REFUSE") // and what does so in another way
)

// growing are all of them.
var growing = []iptables.ID{
	portalsIn, portalsOut, portalsShut, portsIn, portsOut,
	portalsReject, portalsDrop, portsReject, portsDrop, admit, refuse,
}

func nat(chain string) iptables.ID    { return iptables.ID{Table: "nat", Chain: chain} }
func filter(chain string) iptables.ID { return iptables.ID{Table: "filter", Chain: chain} }

// A catch is a frontend as rules see it.
type catch struct {
	frame    *frame
	service  *sdk.Service
	frontend sdk.Frontend
	udp      uint16 // the port of its own socket
}

// lines are the rules that c needs. Callers that get an endpoint are led to the
// relay by nat; whoever is left over is turned away by filter.
func (c catch) lines() []line {
	onPod, elsewhere, onNode := c.open(sdk.OnPod), c.open(sdk.Elsewhere), c.open(sdk.OnNode)
	var all []line
	for _, source := range c.sources() {
		switch {
		case elsewhere:
			all = append(all, c.lead(c.in(), source, anyone)...)
		case onPod:
			all = append(all, c.lead(c.in(), source, podsOnly)...)
		}
		if onNode {
			all = append(all, c.lead(c.out(), source, nodeOnly)...)
		}
		if len(c.service.Cluster) == 0 {
			all = append(all, line{c.either(portalsReject, portsReject), c.rule(source, "-j", c.frame.rejected())})
		}
	}
	if len(c.frontend.Sources) > 0 || len(c.service.Cluster) > 0 && !(elsewhere && onNode) {
		all = append(all, line{c.either(portalsDrop, portsDrop), c.rule(match{}, "-j DROP")})
	}
	if len(all) > 0 && all[len(all)-1].in.Table == "filter" && !c.every() {
		all = append(all, line{portalsShut, c.rule(match{}, "-j ACCEPT")})
	}
	return append(all, c.socket()...)
}

// open reports whether callers from there, if their address is allowed, get an
// endpoint.
func (c catch) open(from sdk.Origin) bool {
	f := c.frontend
	f.Sources = nil
	return c.service.Route(f, sdk.Caller{From: from}, c.frame.node).Verdict == sdk.Forward
}

// every reports whether c stands for all addresses that take node ports.
func (c catch) every() bool { return c.frontend.Addr.Addr().IsUnspecified() }

func (c catch) either(portal, port iptables.ID) iptables.ID {
	if c.every() {
		return port
	}
	return portal
}

func (c catch) in() iptables.ID  { return c.either(portalsIn, portsIn) }
func (c catch) out() iptables.ID { return c.either(portalsOut, portsOut) }

// lead is the way of callers to the relay: for TCP one that all frontends share,
// for UDP one to a socket of its own.
func (c catch) lead(in iptables.ID, source match, who string) []line {
	switch {
	case c.service.Name.Protocol == sdk.TCP:
		return []line{{in, c.rule(source, "-j", who)}}
	case c.udp == 0:
		return nil // its socket could not be opened
	case who == podsOnly:
		var all []line
		for _, pods := range c.frame.pods() {
			if both, ok := source.and(pods); ok {
				all = append(all, line{in, c.rule(both, "-j DNAT --to-destination", netip.AddrPortFrom(c.frame.to, c.udp))})
			}
		}
		return all
	}
	return []line{{in, c.rule(source, "-j DNAT --to-destination", netip.AddrPortFrom(c.frame.to, c.udp))}}
}

// socket lets in who was led to the UDP socket, and nobody else.
func (c catch) socket() []line {
	if c.udp == 0 {
		return nil
	}
	to := match{to: netip.PrefixFrom(c.frame.to, c.frame.to.BitLen())}
	return []line{
		{admit, to.rule("-p udp -m udp --dport", c.udp, "-m conntrack --ctstate DNAT -j ACCEPT")},
		{refuse, to.rule("-p udp -m udp --dport", c.udp, "-j", c.frame.rejected())},
	}
}

// sources are the ranges that callers may be in: one that says nothing, if anyone
// may call.
func (c catch) sources() []match {
	if len(c.frontend.Sources) == 0 {
		return []match{{}}
	}
	var all []match
	for _, p := range c.frontend.Sources {
		if sdk.FamilyOf(p.Addr()) == c.frame.family {
			all = append(all, match{from: p.Masked()})
		}
	}
	return all
}

// rule is one about packets to c that m matches.
func (c catch) rule(m match, action ...any) iptables.Rule {
	if addr := c.frontend.Addr.Addr(); !c.every() {
		m.to = netip.PrefixFrom(addr, addr.BitLen())
	}
	name := c.service.Name
	p := name.Protocol.String()
	words := []any{"-p", p, "-m comment --comment", label(name), "-m", p, "--dport", c.frontend.Addr.Port()}
	return m.rule(append(words, action...)...)
}

// label is a Service as operators write it.
func label(n sdk.Name) iptables.Text {
	text := n.Namespace + "/" + n.Service
	if n.Port != "" {
		text += ":" + n.Port
	}
	return iptables.Text(text)
}

// health lets in who asks the host how many endpoints this node has.
func health(port uint16) []line {
	return []line{{admit, iptables.Words("-p tcp -m tcp --dport", port, "-j ACCEPT")}}
}

// A match is where a packet comes from and goes to, as far as it matters.
type match struct {
	from, to netip.Prefix
	device   string
}

// and is both at once; not ok if nothing is in both.
func (m match) and(n match) (match, bool) {
	if n.device != "" {
		m.device = n.device
		return m, true
	}
	switch {
	case !m.from.IsValid() || n.from.IsValid() && m.from.Contains(n.from.Addr()) && m.from.Bits() <= n.from.Bits():
		m.from = n.from
	case n.from.IsValid() && !n.from.Contains(m.from.Addr()):
		return m, false
	}
	return m, true
}

// rule puts m before the other words of a rule, in the order of iptables-save.
func (m match) rule(words ...any) iptables.Rule {
	var b strings.Builder
	for _, part := range []struct {
		option string
		prefix netip.Prefix
	}{{"-s", m.from}, {"-d", m.to}} {
		if part.prefix.IsValid() && part.prefix.Bits() > 0 {
			fmt.Fprintf(&b, "%s %s ", part.option, part.prefix)
		}
	}
	if m.device != "" {
		fmt.Fprintf(&b, "-i %s ", iptables.Interface(m.device))
	}
	return iptables.Words(append([]any{strings.TrimSpace(b.String())}, words...)...)
}
