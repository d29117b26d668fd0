// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A piece has what one Service needs in the kernel. want renders it for any role, and place adds what depends
// on the present role. A piece is immutable after SetDesired.
type piece struct {
	mark    uint32   // selects the virtual server for clients on this node; zero: there is none
	members []member // set members that do not depend on who owns a virtual server
	servers []server
	vips    []netip.Addr // addresses that the node must have
	drains  bool         // removed destinations keep their connections
	stay    []netip.Addr // UDP: removed destinations at these addresses keep their flows; sorted

	bound []netip.Addr // in this role: the vips on our device
}

// A member is a set member: an entry and its note.
type member struct {
	entry
	note
}

func compareMembers(a, b member) int { return compareEntries(a.entry, b.entry) }

// sortMembers sorts members and removes duplicates: source ranges may repeat.
func sortMembers(all []member) []member {
	slices.SortFunc(all, compareMembers)
	return slices.CompactFunc(all, func(a, b member) bool { return a.entry == b.entry })
}

// A server is a virtual server at one address of a frontend, or for one mark.
type server struct {
	at serviceKey
	scheduling
	dests   dests    // all have weight 1 while the role is Active
	any     bool     // from a node port without address: a Service that names the address takes precedence
	members []member // set members that exist only if this Service owns the virtual server

	covered bool  // another Service names the address and owns the virtual server
	exists  bool  // in this role the virtual server exists
	state   state // the state in this role
}

// Equal reports whether both pieces need the same objects.
func (p *piece) Equal(q *piece) bool {
	if p == q || p == nil || q == nil {
		return p == q
	}
	return p.mark == q.mark && slices.Equal(p.members, q.members) && slices.Equal(p.bound, q.bound) &&
		slices.EqualFunc(p.servers, q.servers, func(a, b server) bool {
			return a.at == b.at && a.covered == b.covered && a.exists == b.exists && a.state == b.state && slices.Equal(a.members, b.members)
		})
}

// list returns the servers of a piece, which may be nil.
func (p *piece) list() []server {
	if p == nil {
		return nil
	}
	return p.servers
}

// state returns the state of a virtual server that the piece has in the kernel.
func (p *piece) state(at serviceKey) (state, bool) {
	for i := range p.list() {
		if s := &p.servers[i]; s.exists && s.at == at {
			return s.state, true
		}
	}
	return state{}, false
}

func (p *piece) binds(vip netip.Addr) bool { return p != nil && slices.Contains(p.bound, vip) }

// keepsConnections reports whether a destination that is no longer desired keeps its connections.
func (p *piece) keepsConnections(dest netip.AddrPort) bool {
	_, serves := slices.BinarySearchFunc(p.stay, dest.Addr(), netip.Addr.Compare)
	return p.drains || serves
}

// SetDesired replaces the desired pieces of Services, and adapts them to the present role.
func (f *family) SetDesired(all map[sdk.Name]*piece) {
	placed := make(map[sdk.Name]*piece, len(all))
	maps.Copy(placed, all)
	for _, at := range f.claimAddrs(all) {
		name, is := f.nodePorts[portOf(at)]
		if _, changes := all[name]; is && !changes {
			placed[name] = f.Desired()[name]
		}
	}
	free := f.findReleased(placed)
	for name, p := range placed {
		placed[name] = f.place(p, f.Installed()[name], free)
	}
	f.Reconciler.SetDesired(placed)
}

// placeAll adapts all pieces again, because the role changed or connections ended.
func (f *family) placeAll() { f.SetDesired(f.Desired()) }

// A port is a node port.
type port struct {
	protocol sdk.Protocol
	number   uint16
}

func portOf(at serviceKey) port { return port{at.protocol, at.addr.Port()} }

// claimAddrs records which Services have node ports and which name addresses of the node. It returns the virtual
// servers at node addresses whose owner may have changed.
func (f *family) claimAddrs(all map[sdk.Name]*piece) (moved []serviceKey) {
	for name := range all {
		for _, s := range f.Desired()[name].list() {
			switch {
			case s.any && f.nodePorts[portOf(s.at)] == name:
				delete(f.nodePorts, portOf(s.at))
			case !s.any && f.named[s.at] == name:
				delete(f.named, s.at)
				moved = append(moved, s.at)
			}
		}
	}
	for name, p := range all {
		for _, s := range p.list() {
			switch {
			case s.any:
				f.nodePorts[portOf(s.at)] = name
			case s.at.mark == 0 && slices.Contains(f.node.addrs, s.at.addr.Addr()):
				f.named[s.at] = name
				moved = append(moved, s.at)
			}
		}
	}
	return moved
}

// released has the virtual servers and addresses that changed Services give up, so that others can take them
// over.
type released struct {
	servers map[serviceKey]state
	bound   map[netip.Addr]bool
}

// findReleased returns what the installed pieces of these Services have and their new ones do not.
func (f *family) findReleased(all map[sdk.Name]*piece) released {
	l := released{make(map[serviceKey]state), make(map[netip.Addr]bool)}
	for name, p := range all {
		had := f.Installed()[name]
		for _, s := range had.list() {
			if s.exists && !slices.ContainsFunc(p.list(), func(t server) bool { return t.at == s.at && !f.isCovered(t) }) {
				l.servers[s.at] = s.state
			}
		}
		if had != nil && p == nil {
			for _, vip := range had.bound {
				l.bound[vip] = true
			}
		}
	}
	return l
}

// isCovered reports whether another Service names the address of a node port.
func (f *family) isCovered(s server) bool {
	_, named := f.named[s.at]
	return s.any && named
}

// place returns a copy of p with the parts that depend on the present role. had is the installed piece of the
// Service.
func (f *family) place(p, had *piece, free released) *piece {
	if p == nil {
		return nil
	}
	q := *p
	q.servers, q.bound = slices.Clone(p.servers), nil
	for i := range q.servers {
		s := &q.servers[i]
		was, there := had.state(s.at)
		if !there {
			was, there = free.servers[s.at]
		}
		if !there {
			was, there = f.unowned[s.at]
		}
		s.covered = f.isCovered(*s)
		s.exists = !s.covered && f.needsServer(s.at, there)
		s.state = state{}
		if s.exists {
			s.state = q.stateOf(*s, was, f.role == sdk.Active)
		}
	}
	for _, vip := range p.vips {
		if f.needsAddr(vip, had.binds(vip) || free.bound[vip]) {
			q.bound = append(q.bound, vip)
		}
	}
	return &q
}

// needsServer reports whether a virtual server should exist in the present role. there says whether it exists
// now. Standby and Draining keep what exists, because it may have connections. They add no virtual server at an
// address of the node, where it would receive packets, but all others, and so can become Active quickly.
func (f *family) needsServer(at serviceKey, there bool) bool {
	return f.role == sdk.Active || there || at.mark != 0 || !f.others[at.addr.Addr()]
}

// needsAddr reports whether our device should have an address in the present role. If another device had the
// address first, the node has it already.
func (f *family) needsAddr(addr netip.Addr, there bool) bool {
	return there || f.role == sdk.Active && !f.others[addr]
}

// stateOf returns the desired state of a server whose state in the kernel is was. A removed destination gets
// weight 0 and keeps its connections. Only the kernel remembers such a destination: one with weight 0 that is
// not desired is being drained, which also holds for a process that was restarted.
func (p *piece) stateOf(s server, was state, active bool) state {
	var drained []netip.AddrPort
	for _, some := range []dests{was.serving, was.idle, was.odd} {
		drained = append(drained, some.without(s.dests)...)
	}
	drained = slices.DeleteFunc(drained, func(dest netip.AddrPort) bool { return !p.keepsConnections(dest) })
	v := state{scheduling: s.scheduling, flags: s.flags()}
	if active {
		v.serving = s.dests
	} else if v.idle = s.dests; len(drained) > 0 {
		drained = append(drained, s.dests.list()...)
	}
	if len(drained) > 0 {
		slices.SortFunc(drained, netip.AddrPort.Compare)
		v.idle = newDests(drained)
	}
	return v
}

// drained returns the destinations of a server that wait for their last connection to end.
func (s server) drained() []netip.AddrPort { return s.state.idle.without(s.dests) }
