// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// ownStem begins the names of chains that belong to one frontend.
const ownStem = "KUBE-PS-"

// A renderer determines the rules of one frontend: those that redirect its packets to the relay, and those that reject or drop
// them.
type renderer struct {
	node     *nodeConfig
	service  *sdk.Service
	frontend sdk.Frontend
	udp      uint16 // the port of its own UDP socket; 0: none
}

// frontendRules are the rules for a frontend, or for all frontends of a Service.
type frontendRules struct {
	chains  []iptables.Chain
	entries []rules.Entry
}

// rules returns the rules of c: an entry in a tree of nat, one in a tree of filter, and an own chain behind an entry if one
// rule is not enough. Nat redirects packets that get an endpoint; filter rejects or drops all others.
func (c renderer) rules() frontendRules {
	var d frontendRules
	c.addRedirect(&d)
	c.addDeny(&d)
	if c.frontend.Kind == sdk.ExternalIP || c.frontend.Kind == sdk.LoadBalancer {
		d.entries = append(d.entries, rules.Entry{In: loopPortal, Key: tree.Key{Addr: c.frontend.Addr.Addr()}, Rule: "-j DROP"})
	}
	if c.udp != 0 {
		d.entries = append(d.entries, guardEntry(sdk.UDP, c.udp))
	}
	return d
}

// addRedirect adds the rules of nat. They accept other packets to an address, or the node port of another Service could
// redirect these.
func (c renderer) addRedirect(d *frontendRules) {
	redirected := c.redirected()
	switch {
	case len(redirected) == 1 && redirected[0] == match{}:
		d.entries = append(d.entries, c.entry(natPortal, natPort, c.action()))
	case len(redirected) > 0:
		own := c.own("nat")
		for _, m := range redirected {
			own.Rules = append(own.Rules, m.rule("-p", c.service.Name.Protocol, c.action()))
		}
		own.Rules = append(own.Rules, "-j ACCEPT")
		d.chains = append(d.chains, own)
		d.entries = append(d.entries, c.entry(natPortal, natPort, iptables.Words("-j", own.ID.Chain)))
	case !c.every():
		d.entries = append(d.entries, c.entry(natPortal, natPort, "-j ACCEPT"))
	}
}

// addDeny adds the rules of filter for packets that nat has not redirected.
func (c renderer) addDeny(d *frontendRules) {
	switch {
	case len(c.service.Cluster) == 0 && len(c.frontend.Sources) == 0:
		d.entries = append(d.entries, c.entry(denyPortal, denyPort, iptables.Refused(c.node.family)))
	case len(c.service.Cluster) == 0:
		own := c.own("filter")
		for _, source := range c.sources() {
			own.Rules = append(own.Rules, source.rule(iptables.Refused(c.node.family)))
		}
		own.Rules = append(own.Rules, "-j DROP")
		d.chains = append(d.chains, own)
		d.entries = append(d.entries, c.entry(denyPortal, denyPort, iptables.Words("-j", own.ID.Chain)))
	case len(c.frontend.Sources) > 0 || !c.serves(sdk.Elsewhere):
		d.entries = append(d.entries, c.entry(denyPortal, denyPort, "-j DROP"))
	}
}

// redirected returns the packets to redirect: those from clients that are allowed and get an endpoint.
func (c renderer) redirected() (all []match) {
	for _, source := range c.sources() {
		for _, from := range c.origins() {
			if both, ok := source.and(from); ok {
				all = append(all, both)
			}
		}
	}
	return all
}

// origins returns the packets from clients that get an endpoint, without regard to source ranges. For TCP the shared chains
// match pods and the node.
func (c renderer) origins() []match {
	switch {
	case c.service.Name.Protocol == sdk.UDP && c.udp == 0:
		return nil // the socket could not be opened
	case c.serves(sdk.Elsewhere):
		return []match{{}}
	case !c.serves(sdk.OnNode):
		return nil
	case c.service.Name.Protocol == sdk.TCP:
		return []match{{}}
	}
	return append([]match{{local: true}}, c.node.pods()...)
}

// action returns what redirects a packet: for TCP a shared chain, for UDP a target with the frontend's own socket.
func (c renderer) action() iptables.Rule {
	switch {
	case c.service.Name.Protocol == sdk.UDP:
		return iptables.Words("-j DNAT --to-destination", netip.AddrPortFrom(c.node.to, c.udp))
	case c.serves(sdk.Elsewhere):
		return iptables.Words("-j", toAny.Chain)
	}
	return iptables.Words("-j", toInside.Chain)
}

// serves reports whether clients of an origin get an endpoint, if source ranges allow them.
func (c renderer) serves(from sdk.Origin) bool {
	f := c.frontend
	f.Sources = nil
	return c.service.Route(f, sdk.Caller{From: from}, c.node.node).Verdict == sdk.Forward
}

// every reports whether c is a node port.
func (c renderer) every() bool { return c.frontend.Addr.Addr().IsUnspecified() }

// entry returns an entry for c in a tree: in port if c is a node port, else in portal.
func (c renderer) entry(portal, port int, action iptables.Rule) rules.Entry {
	name := c.service.Name
	e := rules.Entry{
		In: portal, Key: tree.Key{Addr: c.frontend.Addr.Addr(), Protocol: name.Protocol, Port: c.frontend.Addr.Port()},
		Rule: iptables.Words("-m comment --comment", iptables.Text(iptables.Label(name)), action),
	}
	if c.every() {
		e.In, e.Key.Addr = port, netip.Addr{}
	}
	return e
}

// own returns c's own chain in a table, without rules.
func (c renderer) own(table string) iptables.Chain {
	return iptables.Chain{ID: iptables.ID{Table: table, Chain: ownChain(place{c.service.Name.Protocol, c.frontend.Addr})}}
}

// ownChain returns the name of the own chain of the frontend at p.
func ownChain(p place) string { return ownStem + iptables.Hash(p.String()) }

// sources returns the packets from allowed sources: all packets if there are no source ranges.
func (c renderer) sources() []match {
	if len(c.frontend.Sources) == 0 {
		return []match{{}}
	}
	var all []match
	for _, p := range c.frontend.Sources {
		if sdk.FamilyOf(p.Addr()) == c.node.family {
			all = append(all, match{from: p.Masked()})
		}
	}
	return all
}

// guardEntry returns an entry that lets a socket of ours receive only redirected packets.
func guardEntry(p sdk.Protocol, port uint16) rules.Entry {
	return rules.Entry{In: guardPort, Key: tree.Key{Protocol: p, Port: port}, Rule: iptables.Words("-g", ownSocket.Chain)}
}

// healthEntry returns an entry that accepts health checks on a port.
func healthEntry(port uint16) rules.Entry {
	return rules.Entry{In: guardPort, Key: tree.Key{Protocol: sdk.TCP, Port: port}, Rule: "-j ACCEPT"}
}

// A match matches packets by their origin. The zero value matches all.
type match struct {
	from   netip.Prefix
	device string
	local  bool // sent by the node
}

// and returns the intersection of m and n; false if it is empty. n has at most one condition.
func (m match) and(n match) (match, bool) {
	switch {
	case n.device != "" || n.local:
		m.device, m.local = n.device, n.local
	case !m.from.IsValid() || n.from.IsValid() && m.from.Contains(n.from.Addr()) && m.from.Bits() <= n.from.Bits():
		m.from = n.from
	case n.from.IsValid() && !n.from.Contains(m.from.Addr()):
		return m, false
	}
	return m, true
}

// rule returns a rule with m and words, the last of which is the action. The order is that of iptables-save.
func (m match) rule(words ...any) iptables.Rule {
	var b strings.Builder
	if m.from.IsValid() && m.from.Bits() > 0 {
		fmt.Fprintf(&b, "-s %s ", m.from)
	}
	if m.device != "" {
		fmt.Fprintf(&b, "-i %s ", iptables.Interface(m.device))
	}
	all := []any{strings.TrimSpace(b.String())}
	all = append(all, words[:len(words)-1]...)
	if m.local {
		all = append(all, "-m addrtype --src-type LOCAL")
	}
	return iptables.Words(append(all, words[len(words)-1])...)
}
