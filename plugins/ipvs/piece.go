// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A piece is what one Service needs of the kernel: in any role, as want renders it, and in one role, as place adds it. A
// piece that was put is never changed.
type piece struct {
	mark    uint32   // of the virtual server for callers on this node; zero: there is none
	members []member // entries of sets that are needed whichever Service owns a virtual server
	servers []server
	vips    []netip.Addr // addresses that the node must have
	drains  bool         // a destination that leaves keeps its connections
	stay    []netip.Addr // UDP: so does one of these; in order

	bound []netip.Addr // in this role: the vips that our device has
}

// A member is an entry of a set.
type member struct {
	entry
	note
}

func compareMembers(a, b member) int { return compareEntries(a.entry, b.entry) }

// inOrder sorts entries, and leaves each out that is there already: ranges of sources may be the same.
func inOrder(all []member) []member {
	slices.SortFunc(all, compareMembers)
	return slices.CompactFunc(all, func(a, b member) bool { return a.entry == b.entry })
}

// A server is a virtual server, at one address that a frontend stands for, or for one mark.
type server struct {
	at serviceKey
	scheduling
	dests   dests    // each of weight 1 while the role is Active
	any     bool     // by a node port's number alone: a Service that names the address takes precedence
	members []member // entries of sets that are needed by the Service that owns it

	covered bool  // another Service names the address
	here    bool  // in this role there is a virtual server,
	state   state // and this is it
}

// Equal reports whether both pieces have the same entries.
func (p *piece) Equal(q *piece) bool {
	if p == q || p == nil || q == nil {
		return p == q
	}
	return p.mark == q.mark && slices.Equal(p.members, q.members) && slices.Equal(p.bound, q.bound) &&
		slices.EqualFunc(p.servers, q.servers, func(a, b server) bool {
			return a.at == b.at && a.covered == b.covered && a.here == b.here && a.state == b.state && slices.Equal(a.members, b.members)
		})
}

// list returns the servers of a piece, also of none.
func (p *piece) list() []server {
	if p == nil {
		return nil
	}
	return p.servers
}

// state returns what the kernel has of a virtual server, if it has it.
func (p *piece) state(at serviceKey) (state, bool) {
	for i := range p.list() {
		if s := &p.servers[i]; s.here && s.at == at {
			return s.state, true
		}
	}
	return state{}, false
}

func (p *piece) binds(vip netip.Addr) bool { return p != nil && slices.Contains(p.bound, vip) }

// keeps reports whether a destination that is no longer wanted keeps its connections.
func (p *piece) keeps(dest netip.AddrPort) bool {
	_, serves := slices.BinarySearchFunc(p.stay, dest.Addr(), netip.Addr.Compare)
	return p.drains || serves
}

// Put replaces the desired pieces of Services, and places them in the present role.
func (f *family) Put(all map[sdk.Name]*piece) {
	placed := make(map[sdk.Name]*piece, len(all))
	maps.Copy(placed, all)
	for _, at := range f.claim(all) {
		name, is := f.nodePorts[portOf(at)]
		if _, changes := all[name]; is && !changes {
			placed[name] = f.Desired()[name]
		}
	}
	free := f.releases(placed)
	for name, p := range placed {
		placed[name] = f.place(p, f.Installed()[name], free)
	}
	f.session.plugin.parked.set(f.role, placed)
	f.SetDesired(placed)
}

// placeAll places all pieces again, because the role changed or connections ended.
func (f *family) placeAll() { f.Put(f.Desired()) }

// A port is the number of a node port.
type port struct {
	protocol sdk.Protocol
	number   uint16
}

func portOf(at serviceKey) port { return port{at.protocol, at.addr.Port()} }

// claim records which Services have node ports, and which name addresses of the node. It returns the virtual servers there that a
// Service may have begun or ceased to name.
func (f *family) claim(all map[sdk.Name]*piece) (moved []serviceKey) {
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

// released are virtual servers and addresses that Services give up which change, for others to take over.
type released struct {
	servers map[serviceKey]state
	bound   map[netip.Addr]bool
}

// releases returns what the installed pieces of these Services have and their new ones do not.
func (f *family) releases(all map[sdk.Name]*piece) released {
	l := released{make(map[serviceKey]state), make(map[netip.Addr]bool)}
	for name, p := range all {
		had := f.Installed()[name]
		for _, s := range had.list() {
			if s.here && !slices.ContainsFunc(p.list(), func(t server) bool { return t.at == s.at && !f.covers(t) }) {
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

// covers reports whether another Service names the address of a node port.
func (f *family) covers(s server) bool {
	_, named := f.named[s.at]
	return s.any && named
}

// place returns p with what there is of it in the present role. had is the installed piece of the Service.
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
		s.covered = f.covers(*s)
		s.here = !s.covered && f.hasServer(s.at, there)
		s.state = state{}
		if s.here {
			s.state = q.stateOf(*s, was, f.role == sdk.Active)
		}
	}
	for _, vip := range p.vips {
		if f.hasAddr(vip, had.binds(vip) || free.bound[vip]) {
			q.bound = append(q.bound, vip)
		}
	}
	return &q
}

// hasServer reports whether there should be a virtual server in the present role. Standby catches nothing, so there is none at an
// address that the node has, unless it still has connections; Draining keeps all that are there, and is as ready as Standby to be
// Active.
func (f *family) hasServer(at serviceKey, there bool) bool {
	elsewhere := at.mark != 0 || !f.others[at.addr.Addr()]
	return f.role == sdk.Active || elsewhere || there && (f.role == sdk.Draining || f.busy.servers[at])
}

// hasAddr reports whether our device should have an address in the present role. One that another device had first
// is the node's already.
func (f *family) hasAddr(addr netip.Addr, there bool) bool {
	switch f.role {
	case sdk.Active:
		return there || !f.others[addr]
	case sdk.Draining:
		return there
	}
	return there && f.busy.addrs[addr]
}

// stateOf returns the state of a server, of which the kernel has was. A destination that leaves gets weight 0 and keeps its
// connections. Nothing remembers it but the kernel: what has weight 0 and is not wanted is drained, also by a process that
// starts anew.
func (p *piece) stateOf(s server, was state, active bool) state {
	var drained []netip.AddrPort
	for _, some := range []dests{was.serving, was.idle, was.odd} {
		drained = append(drained, some.without(s.dests)...)
	}
	drained = slices.DeleteFunc(drained, func(dest netip.AddrPort) bool { return !p.keeps(dest) })
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

// drained returns the destinations of a server that wait for their last connection.
func (s server) drained() []netip.AddrPort { return s.state.idle.without(s.dests) }
