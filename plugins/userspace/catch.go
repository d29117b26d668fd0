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

// This file says which rules lead a frontend's packets to the relay, and which
// deny those that are not to be let in. The chains that are there without any
// frontend are in rules.go.

// ownStem is what the names of the chains that belong to one frontend begin with.
const ownStem = "KUBE-PS-"

// A catch is a frontend as rules see it.
type catch struct {
	node     *nodeConfig
	service  *sdk.Service
	frontend sdk.Frontend
	udp      uint16 // the port of its own socket
}

// frontendRules are the rules for a frontend, or for all frontends of a Service.
type frontendRules struct {
	chains  []iptables.Chain
	entries []rules.Entry
}

// rules is what c needs: an entry in a tree of nat, one in a tree of filter, and a chain
// of its own behind them where one rule is not enough. Nat leads callers that get an
// endpoint to the relay; filter rejects or drops the others.
func (c catch) rules() frontendRules {
	var d frontendRules
	c.lead(&d)
	c.deny(&d)
	if c.frontend.Kind == sdk.ExternalIP || c.frontend.Kind == sdk.LoadBalancer {
		d.entries = append(d.entries, rules.Entry{In: loopedPortal, Key: tree.Key{Addr: c.frontend.Addr.Addr()}, Rule: "-j DROP"})
	}
	if c.udp != 0 {
		d.entries = append(d.entries, guard(sdk.UDP, c.udp))
	}
	return d
}

// lead sends clients that get an endpoint to the relay. Others that call an address of a
// Service go no further in nat, or a node port of another Service could take them.
func (c catch) lead(d *frontendRules) {
	let := c.letIn()
	switch {
	case len(let) == 1 && let[0] == match{}:
		c.enter(d, leadsPortal, leadsPort, c.action())
	case len(let) > 0:
		own := c.own("nat")
		for _, m := range let {
			own.Rules = append(own.Rules, m.rule("-p", c.service.Name.Protocol, c.action()))
		}
		own.Rules = append(own.Rules, "-j ACCEPT")
		d.chains = append(d.chains, own)
		c.enter(d, leadsPortal, leadsPort, iptables.Words("-j", own.ID.Chain))
	case !c.every():
		c.enter(d, leadsPortal, leadsPort, "-j ACCEPT")
	}
}

// deny is for clients that nat has led nowhere.
func (c catch) deny(d *frontendRules) {
	switch {
	case len(c.service.Cluster) == 0 && len(c.frontend.Sources) == 0:
		c.enter(d, deniesPortal, deniesPort, iptables.Refused(c.node.family))
	case len(c.service.Cluster) == 0:
		own := c.own("filter")
		for _, source := range c.sources() {
			own.Rules = append(own.Rules, source.rule(iptables.Refused(c.node.family)))
		}
		own.Rules = append(own.Rules, "-j DROP")
		d.chains = append(d.chains, own)
		c.enter(d, deniesPortal, deniesPort, iptables.Words("-j", own.ID.Chain))
	case len(c.frontend.Sources) > 0 || !c.open(sdk.Elsewhere):
		c.enter(d, deniesPortal, deniesPort, "-j DROP")
	}
}

// letIn are the clients that get an endpoint and may call.
func (c catch) letIn() (all []match) {
	for _, source := range c.sources() {
		for _, from := range c.callers() {
			if both, ok := source.and(from); ok {
				all = append(all, both)
			}
		}
	}
	return all
}

// callers are the clients that get an endpoint, wherever the source may be. TCP's shared
// chains tell pods and the node from others; UDP has only this.
func (c catch) callers() []match {
	switch {
	case c.service.Name.Protocol == sdk.UDP && c.udp == 0:
		return nil // its socket could not be opened
	case c.open(sdk.Elsewhere):
		return []match{{}}
	case !c.open(sdk.OnNode):
		return nil
	case c.service.Name.Protocol == sdk.TCP:
		return []match{{}}
	}
	return append([]match{{local: true}}, c.node.pods()...)
}

// action leads clients to the relay: for TCP by sockets that all frontends share, for UDP to the frontend's own.
func (c catch) action() iptables.Rule {
	switch {
	case c.service.Name.Protocol == sdk.UDP:
		return iptables.Words("-j DNAT --to-destination", netip.AddrPortFrom(c.node.to, c.udp))
	case c.open(sdk.Elsewhere):
		return iptables.Words("-j", toAny.Chain)
	}
	return iptables.Words("-j", toInside.Chain)
}

// open reports whether callers from there, if their address is allowed, get an
// endpoint.
func (c catch) open(from sdk.Origin) bool {
	f := c.frontend
	f.Sources = nil
	return c.service.Route(f, sdk.Caller{From: from}, c.node.node).Verdict == sdk.Forward
}

// every reports whether c stands for all addresses that take node ports.
func (c catch) every() bool { return c.frontend.Addr.Addr().IsUnspecified() }

// enter adds an entry for c's packets.
func (c catch) enter(d *frontendRules, portal, port int, action iptables.Rule) {
	d.entries = append(d.entries, c.entry(portal, port, action))
}

// entry is one for c's packets: in the first tree if c names an address, in the second if it is a node port.
func (c catch) entry(portal, port int, action iptables.Rule) rules.Entry {
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

// own is the chain of c's own in table, empty.
func (c catch) own(table string) iptables.Chain {
	return iptables.Chain{ID: iptables.ID{Table: table, Chain: ownChain(place{c.service.Name.Protocol, c.frontend.Addr})}}
}

// ownChain is what the chain of the frontend at p is called.
func ownChain(p place) string { return ownStem + iptables.Hash(p.String()) }

// sources are the ranges that callers may be in: one that says nothing, if any
// client may.
func (c catch) sources() []match {
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

// guard accepts at a socket of ours what rules led there, and nothing else.
func guard(p sdk.Protocol, port uint16) rules.Entry {
	return rules.Entry{In: guards, Key: tree.Key{Protocol: p, Port: port}, Rule: iptables.Words("-g", ownSocket.Chain)}
}

// health accepts health checks on port.
func health(port uint16) rules.Entry {
	return rules.Entry{In: guards, Key: tree.Key{Protocol: sdk.TCP, Port: port}, Rule: "-j ACCEPT"}
}

// A match is where a packet comes from, as far as it matters.
type match struct {
	from   netip.Prefix
	device string
	local  bool // from the node itself
}

// and is both at once, of which n has no more than one condition; not ok if nothing
// is in both.
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

// rule puts m before the action that ends words, in the order of iptables-save.
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
