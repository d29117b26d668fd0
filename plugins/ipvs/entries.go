// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/sdk"
)

// A key identifies what the reconciler writes: a set member, a virtual server, an address of our device, or a
// set.
type key struct {
	kind   kind
	entry  entry      // for ofAddress only addr is set, for ofSet only set
	server serviceKey // for ofServer
}

type kind uint8

const (
	ofEntry kind = iota
	ofServer
	ofAddress
	ofSet
)

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), compareEntries(a.entry, b.entry), compareServices(a.server, b.server))
}

// A value is the note of a set member or the state of a virtual server.
type value struct {
	note
	state
}

type change = reconcile.Change[key, value]

func addressKey(a netip.Addr) key { return key{kind: ofAddress, entry: entry{addr: a}} }

func (n nodeConfig) boundKey(a netip.Addr) key {
	return key{entry: entry{set: bound, family: n.family, addr: a}}
}

// The phases of a plan. Replacements are added before old objects are removed. Rules are written before the
// first virtual server, because the masquerade and guard rules must exist before the first address.
const (
	makeSets = iota
	addEntries
	addServers
	addAddresses
	removeRegistered // frontends at addresses of our device, so that the guard rejects packets to removed frontends
	removeServers
	removeAddresses
	removeEntries
	phases
)

// Kind implements reconcile.Mode.
func (f *family) Kind(k key) reconcile.Kind {
	switch k.kind {
	case ofServer:
		return reconcile.Kind{Add: addServers, Remove: removeServers, Label: "virtual servers"}
	case ofAddress:
		return reconcile.Kind{Add: addAddresses, Remove: removeAddresses, Counted: true, Label: "addresses of " + device}
	case ofSet:
		return reconcile.Kind{Add: makeSets, Label: "set " + k.entry.set.name(f.node.family)}
	}
	kind := reconcile.Kind{Add: addEntries, Remove: removeEntries, Label: k.entry.set.name(f.node.family)}
	switch k.entry.set {
	case bound, loopBack, healthPorts:
		kind.Counted = true
	default:
		if f.objects.bound[k.entry.addr] && k.entry.set.registers() { // otherwise the member is removed last: only it shows that the virtual server is ours
			kind.Remove = removeRegistered
		}
	}
	return kind
}

// Entries calls add with everything that a piece needs in its role.
func (f *family) Entries(_ sdk.Name, p *piece, add func(key, value)) {
	if p == nil {
		return
	}
	for _, m := range p.members {
		add(key{entry: m.entry}, value{note: m.note})
	}
	for _, s := range p.servers {
		if s.covered {
			continue
		}
		for _, m := range s.members {
			add(key{entry: m.entry}, value{note: m.note})
		}
		if s.exists {
			add(key{kind: ofServer, server: s.at}, value{state: s.state})
		}
	}
	for _, a := range p.bound {
		add(f.node.boundKey(a), value{})
		add(addressKey(a), value{})
	}
}

// Fixed returns all sets, because rules refer to all of them.
func (f *family) Fixed(sdk.Role, map[string]bool) map[key]value {
	all := make(map[key]value)
	for s := range setCount {
		all[key{kind: ofSet, entry: entry{set: s}}] = value{}
	}
	return all
}

// Frontend returns the frontend of a virtual server.
func (f *family) Frontend(k key) (sdk.Protocol, netip.AddrPort, bool) {
	return k.server.protocol, k.server.addr, k.kind == ofServer && k.server.mark == 0
}

// A reading is the state of the kernel.
type reading struct {
	services map[serviceKey]state // of both families
	sets     map[sdk.Family]setsOf
	addrs    addresses // of both families
}

// read reads the parts of the kernel that the node has.
func (k kernel) read(ctx context.Context) (v reading, err error) {
	if k.balancer != nil {
		if v.services, err = k.Services(); err != nil {
			return v, err
		}
	}
	if k.setKeeper != nil {
		if v.sets, err = k.Sets(ctx); err != nil {
			return v, err
		}
	}
	v.addrs, err = k.Addrs()
	return v, err
}

// ours returns the objects of one family that belong to this dataplane, or to a kube-proxy whose place it
// takes: those that the sets name, without the excluded ranges. Other virtual servers, and other addresses on
// our device, are foreign.
func (v reading) ours(of sdk.Family, excluded []netip.Prefix) map[key]value {
	sets, addrs := v.sets[of], v.addrs.of(of)
	all := make(map[key]value, len(sets.entries))
	for s := range sets.exist {
		all[key{kind: ofSet, entry: entry{set: s}}] = value{}
	}
	registered := make(map[serviceKey]bool)
	for e, n := range sets.entries {
		all[key{entry: e}] = value{note: n}
		if e.set == nearMarks {
			registered[serviceKey{family: of, mark: n.mark}] = true
		}
		e.register(registered, addrs.others)
	}
	for e := range sets.kubeProxyEntries {
		e.register(registered, addrs.others)
	}
	binds := make(map[netip.Addr]bool)
	for _, a := range addrs.ours {
		e := nodeConfig{family: of}.boundKey(a).entry
		if _, listed := sets.entries[e]; listed || sets.kubeProxyEntries[e] {
			all[addressKey(a)], binds[a] = value{}, true
		}
	}
	for at, s := range v.services {
		spared := slices.ContainsFunc(excluded, func(p netip.Prefix) bool { return p.Contains(at.addr.Addr()) })
		if at.family == of && (registered[at] || binds[at.addr.Addr()]) && !spared {
			all[key{kind: ofServer, server: at}] = value{state: s}
		}
	}
	return all
}

// register adds the virtual servers that a set member names to all.
func (e entry) register(all map[serviceKey]bool, others []netip.Addr) {
	if e.set.registers() {
		for _, at := range e.servers(others) {
			all[at] = true
		}
	}
}

// servers returns the virtual servers of a frontend. A node port has one at each of the node's addresses.
func (e entry) servers(others []netip.Addr) []serviceKey {
	if sets[e.set].form != formPort {
		return []serviceKey{e.key()}
	}
	all := make([]serviceKey, len(others))
	for i, addr := range others {
		all[i] = serviceKey{family: e.family, protocol: e.portProtocol(), addr: netip.AddrPortFrom(addr, e.port)}
	}
	return all
}

// key returns the virtual server of a set member that has an address.
func (e entry) key() serviceKey {
	return serviceKey{family: e.family, protocol: e.protocol, addr: netip.AddrPortFrom(e.addr, e.port)}
}

// portProtocol returns the protocol of a member of a bitmap:port set, which only the set determines.
func (e entry) portProtocol() sdk.Protocol {
	if e.set == nodePortsUDP || e.set == nodePortsUDPLocal {
		return sdk.UDP
	}
	return sdk.TCP
}

// owner returns the Service that the comment of a set member names.
func (e entry) owner(n note) (sdk.Name, bool) {
	protocol := e.protocol
	if protocol == 0 {
		protocol = e.portProtocol()
	}
	return parseComment(n.comment, protocol, e.family)
}

// Parse returns the Services that the kernel serves, and the role that it shows.
func (f *family) Parse(all map[key]value) (pieces map[sdk.Name]*piece, role sdk.Role) {
	role = f.roleShown(all)
	pieces, f.unowned = parse(all, f.addrs(), role)
	return pieces, role
}

// parse assigns all objects to Services by the comments of set members. unowned has the virtual servers of no
// Service. others are the addresses of the node.
func parse(all map[key]value, others []netip.Addr, role sdk.Role) (pieces map[sdk.Name]*piece, unowned map[serviceKey]state) {
	pieces, unowned = make(map[sdk.Name]*piece), make(map[serviceKey]state)
	named := make(map[serviceKey]sdk.Name) // the Service that names an address
	for k, v := range all {
		name, is := k.entry.owner(v.note)
		switch {
		case k.kind == ofServer:
			unowned[k.server] = v.state
		case k.kind != ofEntry || !is:
		case k.entry.set.registers() && !k.entry.set.hasNodePorts():
			named[k.entry.key()] = name
			fallthrough
		default:
			pieces[name] = new(piece)
		}
	}
	for k, v := range all {
		if name, is := k.entry.owner(v.note); is && k.kind == ofEntry {
			pieces[name].parse(name, member{k.entry, v.note}, all, named, others)
		}
	}
	for _, p := range pieces {
		for i := range p.servers {
			s := &p.servers[i]
			if s.dests = s.state.serving; role != sdk.Active {
				s.dests = s.state.idle
			}
			delete(unowned, s.at)
			s.members = sortMembers(s.members)
			for _, dest := range s.dests.list() {
				e := entry{set: loopBack, family: s.at.family, addr: dest.Addr(), protocol: s.at.protocol, port: dest.Port(), from: hostPrefix(dest.Addr())}
				if _, is := all[key{entry: e}]; is {
					p.members = append(p.members, member{entry: e})
				}
			}
		}
		p.members = sortMembers(p.members)
		slices.SortFunc(p.servers, func(a, b server) int { return compareServices(a.at, b.at) })
		slices.SortFunc(p.vips, netip.Addr.Compare)
		slices.SortFunc(p.bound, netip.Addr.Compare)
	}
	return pieces, unowned
}

// parse adds a set member, and the virtual servers that it names, to the piece of its Service.
func (p *piece) parse(name sdk.Name, m member, all map[key]value, named map[serviceKey]sdk.Name, others []netip.Addr) {
	registers, nodePort := m.set.registers(), m.set.hasNodePorts()
	if registers {
		p.members = append(p.members, m)
	}
	if a := m.addr; registers && !nodePort && !slices.Contains(p.vips, a) {
		p.vips = append(p.vips, a)
		if _, is := all[addressKey(a)]; is {
			p.bound = append(p.bound, a)
		}
	}
	for _, at := range m.entry.servers(others) {
		v, here := all[key{kind: ofServer, server: at}]
		if !here {
			continue
		}
		s := p.server(at, v.state)
		by, is := named[at]
		s.any, s.covered = s.any || nodePort && by != name, s.covered || nodePort && is && by != name
		if !registers {
			s.members = append(s.members, m)
		}
	}
	if m.set == nearMarks {
		at := serviceKey{family: m.family, mark: m.mark}
		if v, here := all[key{kind: ofServer, server: at}]; here {
			p.mark = m.mark
			p.server(at, v.state)
		}
	}
}

// server returns the server of the piece at a key, and adds it if needed.
func (p *piece) server(at serviceKey, v state) *server {
	for i := range p.servers {
		if p.servers[i].at == at {
			return &p.servers[i]
		}
	}
	p.drains = p.drains || at.protocol == sdk.TCP && v.drains()
	p.servers = append(p.servers, server{at: at, exists: true, scheduling: v.scheduling, state: v})
	return &p.servers[len(p.servers)-1]
}

// roleShown returns the role that the kernel shows. Jumps of kube-proxy in ipvs mode mean Active: its virtual
// servers are ours now and serve. A bound address means that this dataplane was Active and now drains.
func (f *family) roleShown(all map[key]value) sdk.Role {
	if slices.ContainsFunc(f.kubeProxyRules, func(b iptables.Block) bool { return len(b.Delete) > 0 }) {
		return sdk.Active
	}
	role := f.rules.ShownRole()
	if role != sdk.Draining {
		return role
	}
	for k := range all {
		if k.kind == ofAddress {
			return role
		}
	}
	return sdk.Standby
}
