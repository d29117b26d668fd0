// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// A frame is what rules there are in one family with no Service at all: the ways
// in, and the ways from there to the relay's sockets.
//
//	PREROUTING ─▶ KUBE-PORTALS-CONTAINER ─▶ IN ─▶ ANY ─▶ the socket for pods, or for others
//	                                     ├▶ SHUT            (UDP: a socket of its own)
//	                                     └▶ KUBE-NODEPORT-CONTAINER ─▶ …
//	OUTPUT ─────▶ KUBE-PORTALS-HOST ──────▶ OUT ─▶ NODE ─▶ the socket for the node
//	INPUT, FORWARD, OUTPUT ─▶ DENY: what nat has led nowhere is rejected or dropped
//	INPUT ─▶ KUBE-NODEPORT-NON-LOCAL: our sockets are for those whom nat led there
type frame struct {
	family    sdk.Family
	node      sdk.Node
	nodePorts []netip.Addr // those that take node ports now
	to        netip.Addr   // of this node: where packets from elsewhere are sent to

	// doors are the ports of the sockets for TCP, by who calls. None: there are
	// none yet.
	doors [3]uint16
}

// The chains that stand whole.
var (
	container = nat("KUBE-PORTALS-CONTAINER")
	host      = nat("KUBE-PORTALS-HOST")
	toAny     = nat("KUBE-PORTALS-ANY")
	toPods    = nat("KUBE-PORTALS-POD")
	ifPods    = nat("KUBE-PORTALS-IF-POD")
	toNode    = nat("KUBE-PORTALS-NODE")

	nonLocal = filter("KUBE-NODEPORT-NON-LOCAL")
	deny     = filter("KUBE-PORTALS-DENY")
)

// Where a frontend leads callers to.
var anyone, podsOnly, nodeOnly = toAny.Chain, ifPods.Chain, toNode.Chain

// chains are the fixed ones, and their rules.
func (f *frame) chains() map[iptables.ID][]iptables.Rule {
	all := map[iptables.ID][]iptables.Rule{
		container: f.portals(portalsIn, portsIn),
		host:      f.portals(portalsOut, portsOut),
		toAny:     append(f.byPods(), f.door("-j DNAT --to-destination", sdk.Elsewhere)...),
		ifPods:    f.byPods(),
		toPods:    f.door("-j DNAT --to-destination", sdk.OnPod),
		toNode:    f.door("-j REDIRECT --to-ports", sdk.OnNode),
		nonLocal:  f.input(),
		deny: {
			"-m conntrack --ctstate DNAT -j RETURN",
			iptables.Words("-j", portalsReject.Chain),
			iptables.Words("-j", portalsDrop.Chain),
		},
	}
	all[deny] = append(all[deny], f.atNode(portsReject)...)
	all[deny] = append(all[deny], f.atNode(portsDrop)...)
	return all
}

// portals are one way in: addresses of Services first, then node ports.
func (f *frame) portals(portal, port iptables.ID) []iptables.Rule {
	rules := []iptables.Rule{iptables.Words("-j", portal.Chain), iptables.Words("-j", portalsShut.Chain)}
	return append(rules, f.atNode(port)...)
}

// atNode leads what is for addresses that take node ports to a chain.
func (f *frame) atNode(to iptables.ID) []iptables.Rule {
	var rules []iptables.Rule
	for _, addr := range f.nodePorts {
		if sdk.FamilyOf(addr) == f.family {
			rules = append(rules, iptables.Words("-d", addr, "-j", to.Chain))
		}
	}
	return rules
}

// byPods leads pods of this node to the socket for them.
func (f *frame) byPods() []iptables.Rule {
	var rules []iptables.Rule
	for _, pods := range f.pods() {
		rules = append(rules, pods.rule("-j", toPods.Chain))
	}
	return rules
}

// pods are how pods of this node are known.
func (f *frame) pods() []match {
	switch pods := f.node.Pods; {
	case pods.Bridge != "":
		return []match{{device: pods.Bridge}}
	case pods.InterfacePrefix != "":
		return []match{{device: pods.InterfacePrefix + "+"}}
	}
	var all []match
	for _, p := range f.node.Pods.CIDRs {
		if sdk.FamilyOf(p.Addr()) == f.family {
			all = append(all, match{from: p.Masked()})
		}
	}
	return all
}

// door leads TCP to the socket for callers from there.
func (f *frame) door(how string, from sdk.Origin) []iptables.Rule {
	port := f.doors[from]
	switch {
	case port == 0:
		return nil
	case from == sdk.OnNode:
		return []iptables.Rule{iptables.Words("-p tcp", how, port)}
	}
	return []iptables.Rule{iptables.Words("-p tcp", how, netip.AddrPortFrom(f.to, port))}
}

// input lets flows in that nat has led to our sockets, whatever the node's policy
// is, and nobody else. So a socket serves only those who called a Service.
func (f *frame) input() []iptables.Rule {
	var in, out []iptables.Rule
	for _, port := range f.doors {
		if port != 0 {
			in = append(in, iptables.Words("-p tcp -m tcp --dport", port, "-m conntrack --ctstate DNAT -j ACCEPT"))
			out = append(out, iptables.Words("-p tcp -m tcp --dport", port, "-j REJECT --reject-with tcp-reset"))
		}
	}
	in = append(in, iptables.Words("-j", admit.Chain))
	return append(append(in, out...), iptables.Words("-j", refuse.Chain))
}

// rejected is the target that turns a caller away at once.
func (f *frame) rejected() string {
	if f.family == sdk.IPv6 {
		return "REJECT --reject-with icmp6-port-unreachable"
	}
	return "REJECT --reject-with icmp-port-unreachable"
}

// A jump is one rule in a chain that is not ours.
type jump struct {
	at   iptables.ID
	rule iptables.Rule
}

// jumps lead packets into our chains. The guard of our sockets is there in every
// role; without the others we catch nothing. Each is put at the top.
func (f *frame) jumps(role sdk.Role) []jump {
	guard := jump{filter("INPUT"), iptables.Words("-j", nonLocal.Chain)}
	if role != sdk.Active {
		return []jump{guard}
	}
	notOurs := fmt.Sprintf("-m mark ! --mark %#x/%#x", f.mark(), f.mark())
	return []jump{
		guard,
		{filter("INPUT"), iptables.Words("-m conntrack --ctstate NEW -j", deny.Chain)},
		{filter("FORWARD"), iptables.Words("-m conntrack --ctstate NEW -j", deny.Chain)},
		{filter("OUTPUT"), iptables.Words("-m conntrack --ctstate NEW", notOurs, "-j", deny.Chain)},
		{nat("PREROUTING"), iptables.Words("-j", container.Chain)},
		{nat("OUTPUT"), iptables.Words(notOurs, "-j", host.Chain)},
	}
}

// mark is on what the relay itself sends, so that it never comes back to it.
func (f *frame) mark() uint32 { return 1 << (f.node.MasqueradeBit & 31) }
