// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// A reading is what the kernel has of one family.
type reading struct {
	services map[serviceKey]observed // of both families
	sets     setsOf
	addrs    addresses // of both families
	tables   iptables.Tables
}

var ourChains = []string{wayIn, nodePorts, notPod, postrouting, denied, near, guard, health, forward}

func isOurs(id iptables.ID) bool { return slices.Contains(ourChains, id.Chain) }

// isProxied reports whether a chain may be one of a kube-proxy in its ipvs mode.
func isProxied(id iptables.ID) bool {
	return slices.Contains(kubeProxyChains, id) || slices.Contains(kubeProxyShared, id)
}

// ruleConfig is what the rules of a family are.
func ruleConfig(of sdk.Family) ruleset.Config[struct{}] {
	return ruleset.Config[struct{}]{Family: of, Mangle: true, Ours: isOurs, Beside: isProxied, Rank: rank}
}

// rank is the same for all chains: they are too few to be written in pieces.
func rank(iptables.Chain) int { return 0 }

// Parts are some of what a kernel has.
type parts uint8

const (
	inSets parts = 1 << iota
	inAddrs
	inServices
	inRules4
	inRules6
	inAll = inSets | inAddrs | inServices | inRules4 | inRules6
)

// inRules are the rules of one family.
func inRules(f sdk.Family) parts {
	if f == sdk.IPv6 {
		return inRules6
	}
	return inRules4
}

func (p parts) has(part parts) bool { return p&part != 0 }

// adopt takes what the kernel has for what we did: from now on only what differs is
// written. Virtual servers in excluded ranges, and those that our sets do not know,
// are other programs'. Of parts that were not read, what was known stays. It reports
// the role that the kernel shows.
func (o *objects) adopt(s reading, read parts, excluded []netip.Prefix) sdk.Role {
	if read.has(inSets) {
		o.adoptSets(s.sets)
	}
	if read.has(inAddrs) {
		o.adoptAddrs(s.addrs)
	}
	if read.has(inServices) {
		o.adoptServices(s.services, excluded)
	}
	if read.has(inRules(o.node.family)) {
		o.have.relics = relics(s.tables)
	}
	o.touchAll()
	return o.shown()
}

// adoptSets takes over the marks with the entries, so that a Service keeps its own.
func (o *objects) adoptSets(s setsOf) {
	h := &o.have
	h.sets, h.entries, h.counts = make(map[set]shape), make(map[entry]note), make(map[set]int)
	maps.Copy(h.sets, s.shapes)
	for e, n := range s.entries {
		h.add(e, n)
	}
	h.proxied = setsOf{relics: s.relics, proxied: s.proxied}
	for e, n := range h.entries {
		if name, ok := labelled(n.comment, e.protocol, e.family); ok && e.set == nearMarks && o.marks.of[name] == 0 {
			o.marks.keep(name, n.mark)
		}
	}
}

func (o *objects) adoptAddrs(a addresses) {
	h := &o.have
	h.device, h.vips, h.others = a.device, make(map[netip.Addr]bool), make(map[netip.Addr]bool)
	for _, addr := range a.ours {
		e := o.boundEntry(addr)
		if _, listed := h.entries[e]; listed || h.proxied.proxied[e] {
			h.vips[addr] = true
		}
	}
	for _, addr := range a.others {
		h.others[addr] = true
	}
}

func (o *objects) adoptServices(all map[serviceKey]observed, excluded []netip.Prefix) {
	o.have.services, o.have.foreign = make(map[serviceKey]observed), make(map[serviceKey]bool)
	register := o.register()
	for at, v := range all {
		spared := slices.ContainsFunc(excluded, func(p netip.Prefix) bool { return p.Contains(at.addr.Addr()) })
		switch {
		case at.family != o.node.family:
		case (register[at] || o.have.vips[at.addr.Addr()]) && !spared:
			o.have.services[at] = v
		default:
			o.have.foreign[at] = true
		}
	}
}

// register are the virtual services that our sets know of, and those of a kube-proxy that was
// here before. That of a mark is one without an address. At an address that we bound there is
// no other's.
func (o *objects) register() map[serviceKey]bool {
	all := make(map[serviceKey]bool)
	for e, n := range o.have.entries {
		if e.set == nearMarks {
			all[serviceKey{family: e.family, mark: n.mark}] = true
		}
		o.registered(all, e)
	}
	for e := range o.have.proxied.proxied {
		o.registered(all, e)
	}
	return all
}

// registered adds those that an entry registers.
func (o *objects) registered(all map[serviceKey]bool, e entry) {
	switch {
	case !slices.Contains(registers, e.set):
	case sets[e.set].form != formPort:
		all[e.key()] = true
	default:
		for addr := range o.have.others {
			all[serviceKey{family: e.family, protocol: e.portProtocol(), addr: netip.AddrPortFrom(addr, e.port)}] = true
		}
	}
}

// key is the virtual service that an entry with an address is about.
func (e entry) key() serviceKey {
	return serviceKey{family: e.family, protocol: e.protocol, addr: netip.AddrPortFrom(e.addr, e.port)}
}

// portProtocol is the protocol of an entry that has only a port: its set's.
func (e entry) portProtocol() sdk.Protocol {
	if e.set == nodePortsUDP || e.set == nodePortsUDPLocal {
		return sdk.UDP
	}
	return sdk.TCP
}

// shown is the role that jumps mean. Those of a kube-proxy in its ipvs mode count:
// its virtual services are ours now, and go on serving. Draining keeps addresses, which
// Standby has only where there are connections to them.
func (o *objects) shown() sdk.Role {
	role := sdk.Standby
	if slices.ContainsFunc(o.have.relics, func(b iptables.Block) bool { return len(b.Delete) > 0 }) {
		return sdk.Active
	}
	for j := range o.have.rules.Standing() {
		switch j.Rule.Target() {
		case wayIn:
			return sdk.Active
		case postrouting:
			if len(o.have.vips) > 0 {
				role = sdk.Draining
			}
		}
	}
	return role
}

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
func relics(t iptables.Tables) (p ruleset.Plan) {
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

// keep finds, in what was adopted, what a former process serves a Service by that is refused now.
func (o *objects) keep(name sdk.Name) desired {
	p := desired{specs: make(map[serviceKey]spec), entries: make(map[entry]note)}
	mine := func(e entry, n note) bool {
		protocol := e.protocol
		if protocol == 0 {
			protocol = e.portProtocol()
		}
		owner, ok := labelled(n.comment, protocol, e.family)
		return ok && owner == name
	}
	for e, n := range o.have.entries {
		if slices.Contains(registers, e.set) && mine(e, n) {
			p.entries[e] = n
			o.keepSpecs(&p, e)
		}
	}
	if mark, ok := o.marks.of[name]; ok {
		p.mark = mark
		o.keepSpec(&p, serviceKey{family: name.Family, mark: mark}, false)
	}
	for e, n := range o.have.entries {
		if spec, ok := p.specs[e.key()]; ok && !slices.Contains(registers, e.set) && mine(e, n) {
			spec.entries[e] = n
		}
		if e.set == loopBack && p.has(netip.AddrPortFrom(e.addr, e.port)) {
			p.entries[e] = n
		}
	}
	return p
}

func (o *objects) keepSpecs(p *desired, e entry) {
	if sets[e.set].form != formPort {
		o.keepSpec(p, e.key(), o.isNodePort(e.set))
		if !o.isNodePort(e.set) && !slices.Contains(p.vips, e.addr) {
			p.vips = append(p.vips, e.addr)
		}
		return
	}
	for _, addr := range o.node.addrs {
		o.keepSpec(p, serviceKey{family: e.family, protocol: e.portProtocol(), addr: netip.AddrPortFrom(addr, e.port)}, true)
	}
}

func (o *objects) isNodePort(s set) bool { return s == nodePortsSCTP || s == nodePortsSCTPLocal }

func (o *objects) keepSpec(p *desired, at serviceKey, any bool) {
	if v, ok := o.have.services[at]; ok {
		p.specs[at] = spec{scheduling: v.scheduling, dests: v.serving(), drains: at.protocol == sdk.TCP && v.scheduling.drains(), any: any, entries: make(map[entry]note)}
	}
}

func (p desired) has(dest netip.AddrPort) bool {
	for _, spec := range p.specs {
		if spec.wants(dest) {
			return true
		}
	}
	return false
}
