// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// plan finds the steps after which the kernel has what it should, as far as it was
// touched. Nothing goes before what takes its place stands; new connections are
// led our way last, and led away first.
func (b *book) plan() plan {
	var p plan
	entries := slices.SortedFunc(maps.Keys(b.touched.entries), compareEntries)
	vips := slices.SortedFunc(maps.Keys(b.touched.vips), netip.Addr.Compare)
	servers := slices.SortedFunc(maps.Keys(b.touched.servers), compareServers)
	p.rules(b.leadAway())
	p = append(p, b.makeSets()...)
	p = append(p, b.addEntries(entries, vips)...)
	p.rules(iptables.Block{Whole: slices.DeleteFunc(b.ground.chains(), b.have.rules.Has), Insert: b.lacking(steadying())})
	for _, s := range servers {
		p = append(p, b.raise(s)...)
	}
	p = append(p, b.bind(vips)...)
	p.rules(b.lead())
	for _, s := range servers {
		p = append(p, b.lower(s)...)
	}
	p = append(p, b.removeEntries(entries, true)...)
	for _, s := range servers {
		p = append(p, b.removeServer(s)...)
	}
	p = append(p, b.unbind(vips)...)
	p = append(p, b.removeEntries(entries, false)...)
	return p
}

// rules adds a write of rules, if there is something to write.
func (p *plan) rules(b iptables.Block) {
	if !b.Empty() {
		*p = append(*p, step{verb: writeRules, rules: inTables(b)})
	}
}

// inTables is b as it is written, table by table. They take effect one after the other: nat
// before mangle, whose marks are meant for no translation but IPVS's.
func inTables(b iptables.Block) ruleset.Plan {
	var p ruleset.Plan
	for _, table := range []string{"filter", "nat", "mangle"} {
		elsewhere := func(j iptables.Jump) bool { return j.At.Table != table }
		part := iptables.Block{
			Table:  table,
			Whole:  slices.DeleteFunc(slices.Clone(b.Whole), func(c iptables.Chain) bool { return c.ID.Table != table }),
			Insert: slices.DeleteFunc(slices.Clone(b.Insert), elsewhere),
			Delete: slices.DeleteFunc(slices.Clone(b.Delete), elsewhere),
			Remove: slices.DeleteFunc(slices.Clone(b.Remove), func(id iptables.ID) bool { return id.Table != table }),
		}
		if !part.Empty() {
			p = append(p, part)
		}
	}
	return p
}

// leadAway is what has new connections pass this dataplane by, in all roles but Active.
func (b *book) leadAway() iptables.Block {
	if b.role == sdk.Active {
		return iptables.Block{}
	}
	return iptables.Block{Delete: slices.DeleteFunc(catching(), func(j iptables.Jump) bool { return !b.have.rules.Stands(j) })}
}

// lead is what leads new connections to this dataplane while it is Active. It takes the place
// of a kube-proxy in its ipvs mode, whose sets and addresses are ours by then: what leads to
// its chains goes, and so do they, unless foreign rules lead there too.
func (b *book) lead() iptables.Block {
	if b.role != sdk.Active {
		return iptables.Block{}
	}
	block := iptables.Block{Insert: b.lacking(catching()), Delete: slices.Clone(b.have.strays)}
	for _, id := range b.have.relics {
		if _, held := b.have.held[id]; held {
			block.Whole = append(block.Whole, iptables.Chain{ID: id})
		} else {
			block.Remove = append(block.Remove, id)
		}
	}
	return block
}

// lacking are those of jumps that the kernel has not.
func (b *book) lacking(jumps []iptables.Jump) []iptables.Jump {
	return slices.DeleteFunc(jumps, b.have.rules.Stands)
}

// makeSets makes every set that is missing, since rules speak of them all, and puts
// ours in place of another's.
func (b *book) makeSets() plan {
	var p plan
	for s := range setCount {
		switch b.have.sets[s] {
		case missing:
			p = append(p, step{verb: makeSet, set: s, family: b.ground.family})
		case strange:
			p = append(p, step{verb: replaceSet, set: s, family: b.ground.family, fill: b.all(s)})
		}
	}
	return p
}

// all are the entries that s should have.
func (b *book) all(s set) map[entry]note {
	all := make(map[entry]note)
	for e, n := range b.entries {
		if e.set == s {
			all[e] = n[0].note
		}
	}
	for addr := range b.vips {
		if e := b.boundEntry(addr); s == bound && b.vip(addr) {
			all[e] = note{}
		}
	}
	return all
}

// addEntries adds what is missing, or has another note. Addresses get into their set
// before they are bound, so that the guard is there first.
func (b *book) addEntries(entries []entry, vips []netip.Addr) plan {
	var p plan
	add := func(e entry) {
		n, should := b.entry(e)
		if have, there := b.have.entries[e]; should && (!there || have != n) && b.have.sets[e.set] != strange {
			p = append(p, step{verb: addEntry, entry: e, note: n})
		}
	}
	for _, addr := range vips {
		add(b.boundEntry(addr))
	}
	for _, e := range entries {
		if e.set != bound {
			add(e)
		}
	}
	return p
}

// removeEntries removes what should not be there: early what registers frontends at
// addresses on our device, so that the guard refuses what is no longer served; the
// others when the virtual servers have gone that they are about.
func (b *book) removeEntries(entries []entry, early bool) plan {
	var p plan
	for _, e := range slices.Backward(entries) {
		_, there := b.have.entries[e]
		_, should := b.entry(e)
		guarded := slices.Contains(registers, e.set) && b.have.vips[e.addr]
		if there && !should && guarded == early && b.have.sets[e.set] != strange {
			p = append(p, step{verb: removeEntry, entry: e})
		}
	}
	return p
}

// raise makes the virtual server at a place, and its reals, or gives weight to those
// that lacked it.
func (b *book) raise(at server) plan {
	place, weight, should := b.server(at)
	if !should {
		return nil
	}
	var p plan
	have, there := b.have.servers[at]
	switch {
	case !there && b.have.foreign[at], there && (have.how != place.how || have.flags != place.how.flags()):
		p = append(p, step{verb: setServer, server: at, how: place.how})
	case !there:
		p = append(p, step{verb: addServer, server: at, how: place.how})
	}
	for _, real := range place.reals {
		was, has := have.reals[real]
		switch {
		case !has:
			p = append(p, step{verb: addReal, server: at, real: real, weight: weight})
		case was != weight && weight > 0:
			p = append(p, step{verb: weighReal, server: at, real: real, weight: weight})
		}
	}
	return p
}

// lower ends new connections to reals that should get none. A connection of theirs
// goes on where the protocol has any; the reaper removes them when they are idle.
func (b *book) lower(at server) plan {
	place, weight, should := b.server(at)
	if !should {
		return nil
	}
	var p plan
	reals := b.have.servers[at].reals
	for _, real := range slices.SortedFunc(maps.Keys(reals), netip.AddrPort.Compare) {
		wanted := place.wants(real)
		stays := wanted || place.keeps(real)
		switch {
		case wanted && weight > 0, stays && reals[real] == 0:
		case stays:
			p = append(p, step{verb: weighReal, server: at, real: real, weight: 0})
		default:
			p = append(p, step{verb: removeReal, server: at, real: real})
		}
	}
	return p
}

func (b *book) removeServer(at server) plan {
	if _, there := b.have.servers[at]; !there {
		return nil
	}
	if _, _, should := b.server(at); should {
		return nil
	}
	return plan{{verb: removeServer, server: at}}
}

func (b *book) bind(vips []netip.Addr) plan {
	var p plan
	for _, addr := range vips {
		if b.vip(addr) && !b.have.vips[addr] {
			p = append(p, step{verb: bind, addr: addr})
		}
	}
	if len(p) > 0 && !b.have.device {
		p = append(plan{{verb: makeDevice}}, p...)
	}
	return p
}

// unbind takes addresses off our device, and only then lets go of the guard.
func (b *book) unbind(vips []netip.Addr) plan {
	var p, entries plan
	for _, addr := range vips {
		if b.vip(addr) {
			continue
		}
		if b.have.vips[addr] {
			p = append(p, step{verb: unbind, addr: addr})
		}
		e := b.boundEntry(addr)
		if _, there := b.have.entries[e]; there && !b.touched.entries[e] && b.have.sets[bound] != strange {
			entries = append(entries, step{verb: removeEntry, entry: e})
		}
	}
	return append(p, entries...)
}

// done notes that a step was taken.
func (b *book) done(s step) {
	h := &b.have
	switch s.verb {
	case makeSet:
		h.sets[s.set] = right
	case replaceSet:
		h.sets[s.set] = right
		maps.DeleteFunc(h.entries, func(e entry, _ note) bool { return e.set == s.set })
		h.counts[s.set] = 0
		for e, n := range s.fill {
			h.add(e, n)
		}
	case addEntry:
		h.add(s.entry, s.note)
	case removeEntry:
		h.remove(s.entry)
	case addServer:
		h.servers[s.server] = virtual{how: s.how, flags: s.how.flags(), reals: make(map[netip.AddrPort]int)}
	case setServer:
		v := h.servers[s.server]
		if v.reals == nil {
			v.reals = make(map[netip.AddrPort]int)
		}
		v.how, v.flags = s.how, s.how.flags()
		h.servers[s.server] = v
		delete(h.foreign, s.server)
	case removeServer:
		delete(h.servers, s.server)
	case addReal, weighReal:
		h.servers[s.server].reals[s.real] = s.weight
	case removeReal:
		delete(h.servers[s.server].reals, s.real)
	case bind:
		h.vips[s.addr] = true
	case unbind:
		delete(h.vips, s.addr)
	case makeDevice:
		h.device = true
	case writeRules:
		b.doneRules(s.rules)
	}
}

func (b *book) doneRules(p ruleset.Plan) {
	b.have.rules.Done(p)
	for _, block := range p {
		gone := slices.Clone(block.Remove)
		for _, c := range block.Whole {
			gone = append(gone, c.ID)
		}
		b.have.relics = slices.DeleteFunc(b.have.relics, func(id iptables.ID) bool { return slices.Contains(gone, id) })
		b.have.strays = slices.DeleteFunc(b.have.strays, func(j iptables.Jump) bool { return slices.Contains(block.Delete, j) })
	}
}
