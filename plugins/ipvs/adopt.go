// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// A sight is what the kernel has, as it was read.
type sight struct {
	servers map[server]virtual // of both families
	sets    setsOf
	addrs   addresses // of both families
	tables  iptables.Tables
}

var ourChains = []string{services, nodePorts, notPod, postrouting, denied, near, guard, health, forward}

func isOurs(id iptables.ID) bool { return slices.Contains(ourChains, id.Chain) }

// Parts are some of what a kernel has.
type parts uint8

const (
	inSets parts = 1 << iota
	inAddrs
	inServers
	inRules4
	inRules6
	inAll = inSets | inAddrs | inServers | inRules4 | inRules6
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
// are somebody else's. Of parts that were not read, what was known stays. It reports
// the role that the kernel shows.
func (b *book) adopt(s sight, read parts, excluded []netip.Prefix) sdk.Role {
	if read.has(inSets) {
		b.adoptSets(s.sets)
	}
	if read.has(inAddrs) {
		b.adoptAddrs(s.addrs)
	}
	if read.has(inServers) {
		b.adoptServers(s.servers, excluded)
	}
	if read.has(inRules(b.ground.family)) {
		b.adoptTables(s.tables)
	}
	b.touchAll()
	return b.shown()
}

// adoptSets takes over with them whose mark is which, so that a Service keeps its own.
func (b *book) adoptSets(s setsOf) {
	h := &b.have
	h.sets, h.entries, h.counts = make(map[set]shape), make(map[entry]note), make(map[set]int)
	maps.Copy(h.sets, s.shapes)
	for e, n := range s.entries {
		h.add(e, n)
	}
	b.adoptMarks()
}

func (b *book) adoptAddrs(a addresses) {
	h := &b.have
	h.device, h.vips, h.others = a.device, make(map[netip.Addr]bool), make(map[netip.Addr]bool)
	for _, addr := range a.ours {
		if _, listed := h.entries[b.boundEntry(addr)]; listed {
			h.vips[addr] = true
		}
	}
	for _, addr := range a.others {
		h.others[addr] = true
	}
}

func (b *book) adoptMarks() {
	for e, n := range b.have.entries {
		if name, ok := labelled(n.comment, e.protocol, e.family); ok && e.set == nearMarks && b.marks.of[name] == 0 {
			b.marks.keep(name, n.mark)
		}
	}
}

func (b *book) adoptServers(all map[server]virtual, excluded []netip.Prefix) {
	b.have.servers, b.have.foreign = make(map[server]virtual), make(map[server]bool)
	register := b.register()
	for at, v := range all {
		spared := slices.ContainsFunc(excluded, func(p netip.Prefix) bool { return p.Contains(at.addr.Addr()) })
		switch {
		case at.family != b.ground.family:
		case (register[at] || b.have.vips[at.addr.Addr()]) && !spared:
			b.have.servers[at] = v
		default:
			b.have.foreign[at] = true
		}
	}
}

// register are the virtual servers that our sets know of. That of a mark is one
// without an address. At an address that we bound there is no other's.
func (b *book) register() map[server]bool {
	all := make(map[server]bool)
	for e, n := range b.have.entries {
		switch {
		case e.set == nearMarks:
			all[server{family: e.family, mark: n.mark}] = true
		case slices.Contains(registers, e.set) && sets[e.set].form != formPort:
			all[e.server()] = true
		case slices.Contains(registers, e.set):
			for addr := range b.have.others {
				all[server{family: e.family, protocol: e.portProtocol(), addr: netip.AddrPortFrom(addr, e.port)}] = true
			}
		}
	}
	return all
}

// server is the virtual server that an entry with an address is about.
func (e entry) server() server {
	return server{family: e.family, protocol: e.protocol, addr: netip.AddrPortFrom(e.addr, e.port)}
}

// portProtocol is the protocol of an entry that has only a port: its set's.
func (e entry) portProtocol() sdk.Protocol {
	if e.set == nodePortsUDP || e.set == nodePortsUDPLocal {
		return sdk.UDP
	}
	return sdk.TCP
}

func (b *book) adoptTables(t iptables.Tables) {
	b.have.strays, b.have.relics = kubeProxy(t)
	b.have.held = t.Held(func(id iptables.ID) bool { return slices.Contains(b.have.relics, id) })
	b.have.rules.Adopt(t)
}

// shown is the role that jumps mean. Those of a kube-proxy in its ipvs mode count:
// its virtual servers are ours now, and go on serving. Draining keeps addresses, which
// Standby has only where there are connections to them.
func (b *book) shown() sdk.Role {
	role := sdk.Standby
	if len(b.have.strays) > 0 {
		return sdk.Active
	}
	for j := range b.have.rules.Standing() {
		switch j.Rule.Target() {
		case services:
			return sdk.Active
		case postrouting:
			if len(b.have.vips) > 0 {
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

// kubeProxy finds the chains of a kube-proxy in its ipvs mode, and its jumps that lead to
// them. A chain that is empty because a foreign rule has kept it is no sign of one.
func kubeProxy(t iptables.Tables) (strays []iptables.Jump, relics []iptables.ID) {
	gone := func(id iptables.ID) bool { _, there := t[id]; return !there }
	chains := slices.DeleteFunc(slices.Clone(kubeProxyChains), gone)
	held := t.Held(func(id iptables.ID) bool { return slices.Contains(chains, id) })
	chains = slices.DeleteFunc(chains, func(id iptables.ID) bool { _, kept := held[id]; return kept && len(t[id]) == 0 })
	rules := t[nat("KUBE-SERVICES")]
	looks := slices.ContainsFunc(rules, func(r iptables.Rule) bool { return strings.Contains(string(r), "--match-set KUBE-") })
	if looks || len(rules) == 0 && len(chains) > 0 {
		chains = append(chains, slices.DeleteFunc(slices.Clone(kubeProxyShared), gone)...)
	}
	for _, at := range slices.SortedFunc(maps.Keys(t), iptables.ID.Compare) {
		for _, r := range t[at] {
			to := iptables.ID{Table: at.Table, Chain: r.Target()}
			if j := (iptables.Jump{At: at, Rule: r}); slices.Contains(chains, to) && j.Listed() {
				strays = append(strays, j)
			}
		}
	}
	return strays, chains
}

// keep finds, in what was adopted, the piece of a Service that is set aside and that
// this process has never been told.
func (b *book) keep(name sdk.Name) piece {
	p := piece{places: make(map[server]place), entries: make(map[entry]note)}
	mine := func(e entry, n note) bool {
		protocol := e.protocol
		if protocol == 0 {
			protocol = e.portProtocol()
		}
		owner, ok := labelled(n.comment, protocol, e.family)
		return ok && owner == name
	}
	for e, n := range b.have.entries {
		if slices.Contains(registers, e.set) && mine(e, n) {
			p.entries[e] = n
			b.keepPlaces(&p, e)
		}
	}
	if mark, ok := b.marks.of[name]; ok {
		p.mark = mark
		b.keepPlace(&p, server{family: name.Family, mark: mark}, false)
	}
	for e, n := range b.have.entries {
		if place, ok := p.places[e.server()]; ok && !slices.Contains(registers, e.set) && mine(e, n) {
			place.entries[e] = n
		}
		if e.set == loopBack && p.has(netip.AddrPortFrom(e.addr, e.port)) {
			p.entries[e] = n
		}
	}
	return p
}

func (b *book) keepPlaces(p *piece, e entry) {
	if sets[e.set].form != formPort {
		b.keepPlace(p, e.server(), b.isNodePort(e.set))
		if !b.isNodePort(e.set) && !slices.Contains(p.vips, e.addr) {
			p.vips = append(p.vips, e.addr)
		}
		return
	}
	for _, addr := range b.ground.addrs {
		b.keepPlace(p, server{family: e.family, protocol: e.portProtocol(), addr: netip.AddrPortFrom(addr, e.port)}, true)
	}
}

func (b *book) isNodePort(s set) bool { return s == nodePortsSCTP || s == nodePortsSCTPLocal }

func (b *book) keepPlace(p *piece, at server, any bool) {
	if v, ok := b.have.servers[at]; ok {
		p.places[at] = place{how: v.how, reals: v.serving(), drains: at.protocol == sdk.TCP && v.how.drains(), any: any, entries: make(map[entry]note)}
	}
}

func (p piece) has(real netip.AddrPort) bool {
	for _, place := range p.places {
		if place.wants(real) {
			return true
		}
	}
	return false
}
