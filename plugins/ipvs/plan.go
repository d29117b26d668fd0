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
func (o *objects) plan() plan {
	var p plan
	entries := slices.SortedFunc(maps.Keys(o.touched.entries), compareEntries)
	vips := slices.SortedFunc(maps.Keys(o.touched.vips), netip.Addr.Compare)
	services := slices.SortedFunc(maps.Keys(o.touched.services), compareServices)
	p.rules(o.leadAway())
	p = append(p, o.makeSets()...)
	p = append(p, o.addEntries(entries, vips)...)
	p.rules(iptables.Block{Whole: slices.DeleteFunc(o.node.chains(), o.have.rules.Has), Insert: o.lacking(permanent())})
	for _, s := range services {
		p = append(p, o.raise(s)...)
	}
	p = append(p, o.bind(vips)...)
	p.rules(o.lead())
	for _, s := range services {
		p = append(p, o.lower(s)...)
	}
	p = append(p, o.removeEntries(entries, true)...)
	for _, s := range services {
		p = append(p, o.removeService(s)...)
	}
	p = append(p, o.unbind(vips)...)
	p = append(p, o.removeEntries(entries, false)...)
	return p
}

// rules adds a write of rules, if there is something to write.
func (p *plan) rules(b iptables.Block) {
	if !b.Empty() {
		*p = append(*p, step{verb: writeRules, rules: inTables(b)})
	}
}

// tablesInOrder take effect one after the other: nat before mangle, whose marks are meant for
// no translation but IPVS's.
var tablesInOrder = []string{"filter", "nat", "mangle"}

// inTables is b as it is written, table by table.
func inTables(b iptables.Block) ruleset.Plan {
	var p ruleset.Plan
	for _, table := range tablesInOrder {
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
func (o *objects) leadAway() iptables.Block {
	if o.role == sdk.Active {
		return iptables.Block{}
	}
	return iptables.Block{Delete: slices.DeleteFunc(catching(), func(j iptables.Jump) bool { return !o.have.rules.Stands(j) })}
}

// lead is what leads new connections to this dataplane while it is Active. It takes the place
// of a kube-proxy in its ipvs mode, whose sets and addresses are ours by then: what leads to
// its chains goes, and so do they, unless foreign rules lead there too.
func (o *objects) lead() iptables.Block {
	if o.role != sdk.Active {
		return iptables.Block{}
	}
	block := iptables.Block{Insert: o.lacking(catching()), Delete: slices.Clone(o.have.strays)}
	for _, id := range o.have.relics {
		if _, held := o.have.held[id]; held {
			block.Whole = append(block.Whole, iptables.Chain{ID: id})
		} else {
			block.Remove = append(block.Remove, id)
		}
	}
	return block
}

// lacking are those of jumps that the kernel has not.
func (o *objects) lacking(jumps []iptables.Jump) []iptables.Jump {
	return slices.DeleteFunc(jumps, o.have.rules.Stands)
}

// makeSets makes every set that is missing, since rules speak of them all, and puts
// ours in place of another's.
func (o *objects) makeSets() plan {
	var p plan
	for s := range setCount {
		switch o.have.sets[s] {
		case missing:
			p = append(p, step{verb: makeSet, set: s, family: o.node.family})
		case strange:
			p = append(p, step{verb: replaceSet, set: s, family: o.node.family, fill: o.all(s)})
		}
	}
	return p
}

// all are the entries that s should have.
func (o *objects) all(s set) map[entry]note {
	all := make(map[entry]note)
	for e, n := range o.entries {
		if e.set == s {
			all[e] = n[0].value
		}
	}
	for addr := range o.vips {
		if e := o.boundEntry(addr); s == bound && o.vip(addr) {
			all[e] = note{}
		}
	}
	return all
}

// addEntries adds what is missing, or has another note. Addresses get into their set
// before they are bound, so that the guard is there first.
func (o *objects) addEntries(entries []entry, vips []netip.Addr) plan {
	var p plan
	add := func(e entry) {
		n, should := o.entry(e)
		if have, there := o.have.entries[e]; should && (!there || have != n) && o.have.sets[e.set] != strange {
			p = append(p, step{verb: addEntry, entry: e, note: n})
		}
	}
	for _, addr := range vips {
		add(o.boundEntry(addr))
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
// others when the virtual services have gone that they are about.
func (o *objects) removeEntries(entries []entry, early bool) plan {
	var p plan
	for _, e := range slices.Backward(entries) {
		_, there := o.have.entries[e]
		_, should := o.entry(e)
		guarded := slices.Contains(registers, e.set) && o.have.vips[e.addr]
		if there && !should && guarded == early && o.have.sets[e.set] != strange {
			p = append(p, step{verb: removeEntry, entry: e})
		}
	}
	return p
}

// raise makes a virtual service, and its destinations, or gives weight to those
// that lacked it.
func (o *objects) raise(at serviceKey) plan {
	spec, weight, should := o.service(at)
	if !should {
		return nil
	}
	var p plan
	have, there := o.have.services[at]
	switch {
	case !there && o.have.foreign[at], there && (have.scheduling != spec.scheduling || have.flags != spec.scheduling.flags()):
		p = append(p, step{verb: setService, service: at, scheduling: spec.scheduling})
	case !there:
		p = append(p, step{verb: addService, service: at, scheduling: spec.scheduling})
	}
	for _, dest := range spec.dests {
		was, has := have.dests[dest]
		switch {
		case !has:
			p = append(p, step{verb: addDest, service: at, dest: dest, weight: weight})
		case was != weight && weight > 0:
			p = append(p, step{verb: weighDest, service: at, dest: dest, weight: weight})
		}
	}
	return p
}

// lower ends new connections to destinations that should get none. A connection of theirs
// goes on where the protocol has any; the reaper removes them when they are idle.
func (o *objects) lower(at serviceKey) plan {
	spec, weight, should := o.service(at)
	if !should {
		return nil
	}
	var p plan
	dests := o.have.services[at].dests
	for _, dest := range slices.SortedFunc(maps.Keys(dests), netip.AddrPort.Compare) {
		wanted := spec.wants(dest)
		stays := wanted || spec.keeps(dest)
		switch {
		case wanted && weight > 0, stays && dests[dest] == 0:
		case stays:
			p = append(p, step{verb: weighDest, service: at, dest: dest, weight: 0})
		default:
			p = append(p, step{verb: removeDest, service: at, dest: dest})
		}
	}
	return p
}

func (o *objects) removeService(at serviceKey) plan {
	if _, there := o.have.services[at]; !there {
		return nil
	}
	if _, _, should := o.service(at); should {
		return nil
	}
	return plan{{verb: removeService, service: at}}
}

func (o *objects) bind(vips []netip.Addr) plan {
	var p plan
	for _, addr := range vips {
		if o.vip(addr) && !o.have.vips[addr] {
			p = append(p, step{verb: bind, addr: addr})
		}
	}
	if len(p) > 0 && !o.have.device {
		p = append(plan{{verb: makeDevice}}, p...)
	}
	return p
}

// unbind takes addresses off our device, and only then lets go of the guard.
func (o *objects) unbind(vips []netip.Addr) plan {
	var p, entries plan
	for _, addr := range vips {
		if o.vip(addr) {
			continue
		}
		if o.have.vips[addr] {
			p = append(p, step{verb: unbind, addr: addr})
		}
		e := o.boundEntry(addr)
		if _, there := o.have.entries[e]; there && !o.touched.entries[e] && o.have.sets[bound] != strange {
			entries = append(entries, step{verb: removeEntry, entry: e})
		}
	}
	return append(p, entries...)
}

// done notes that a step was taken.
func (o *objects) done(s step) {
	h := &o.have
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
	case addService:
		h.services[s.service] = observed{scheduling: s.scheduling, flags: s.scheduling.flags(), dests: make(map[netip.AddrPort]int)}
	case setService:
		v := h.services[s.service]
		if v.dests == nil {
			v.dests = make(map[netip.AddrPort]int)
		}
		v.scheduling, v.flags = s.scheduling, s.scheduling.flags()
		h.services[s.service] = v
		delete(h.foreign, s.service)
	case removeService:
		delete(h.services, s.service)
	case addDest, weighDest:
		h.services[s.service].dests[s.dest] = s.weight
	case removeDest:
		delete(h.services[s.service].dests, s.dest)
	case bind:
		h.vips[s.addr] = true
	case unbind:
		delete(h.vips, s.addr)
	case makeDevice:
		h.device = true
	case writeRules:
		o.doneRules(s.rules)
	}
}

func (o *objects) doneRules(p ruleset.Plan) {
	o.have.rules.Done(p)
	for _, block := range p {
		gone := slices.Clone(block.Remove)
		for _, c := range block.Whole {
			gone = append(gone, c.ID)
		}
		o.have.relics = slices.DeleteFunc(o.have.relics, func(id iptables.ID) bool { return slices.Contains(gone, id) })
		o.have.strays = slices.DeleteFunc(o.have.strays, func(j iptables.Jump) bool { return slices.Contains(block.Delete, j) })
	}
}
