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
// led our way last, and led away first. Where a kube-proxy in its ipvs mode was, its sets and
// addresses are ours by the time that its rules go.
func (o *objects) plan() plan {
	var p plan
	entries := slices.SortedFunc(maps.Keys(o.touched.entries), compareEntries)
	vips := slices.SortedFunc(maps.Keys(o.touched.vips), netip.Addr.Compare)
	services := slices.SortedFunc(maps.Keys(o.touched.services), compareServices)
	standing, leading := o.planRules()
	p = append(p, o.makeSets()...)
	p = append(p, o.addEntries(entries, vips)...)
	p.rules(writeRules, standing)
	for _, s := range services {
		p = append(p, o.raise(s)...)
	}
	p = append(p, o.bind(vips)...)
	p.rules(writeRules, leading)
	if o.role == sdk.Active {
		p.rules(removeRelics, o.have.relics)
		if sets := o.have.proxied.relics; len(sets) > 0 {
			p = append(p, step{verb: removeRelicSets, relics: sets})
		}
	}
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
func (p *plan) rules(v verb, rules ruleset.Plan) {
	if len(rules) > 0 {
		*p = append(*p, step{verb: v, rules: rules})
	}
}

// planRules is what rules lack: what stands in every role, and, to be written later, what
// leads new connections to this dataplane once it is Active. In another role what led them
// is taken away first.
func (o *objects) planRules() (standing, leading ruleset.Plan) {
	if !o.touched.rules {
		return nil, nil
	}
	rules, all, jumps := o.have.rules, append(permanent(), catching()...), permanent()
	if o.role == sdk.Active {
		jumps = all
	}
	rules.SetJumps(jumps, all)
	rules.SetFixed(ruleset.Desired{Chains: o.node.chains()})
	plan := rules.Plan()
	if o.role != sdk.Active {
		return plan, nil
	}
	leads := func(j iptables.Jump) bool { return !slices.Contains(permanent(), j) }
	stands := func(j iptables.Jump) bool { return !leads(j) }
	for _, b := range plan {
		later := iptables.Block{Table: b.Table, Insert: slices.DeleteFunc(slices.Clone(b.Insert), stands), Delete: slices.DeleteFunc(slices.Clone(b.Delete), stands)}
		b.Insert, b.Delete = slices.DeleteFunc(b.Insert, leads), slices.DeleteFunc(b.Delete, leads)
		standing, leading = append(standing, b), append(leading, later)
	}
	return slices.DeleteFunc(standing, iptables.Block.Empty), slices.DeleteFunc(leading, iptables.Block.Empty)
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
	case removeRelics:
		h.relics = nil
	case removeRelicSets:
		h.proxied = setsOf{}
	}
}
