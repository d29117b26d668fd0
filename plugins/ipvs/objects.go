// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// Objects are what the kernel should have in one family, and what it has as far as is known:
// virtual services, entries of sets, addresses and rules. Only what was touched since the
// two were last the same is compared.
type objects struct {
	node    nodeConfig
	role    sdk.Role
	marks   marks
	desired map[sdk.Name]desired

	specs   map[serviceKey]claims[spec]
	entries map[entry]claims[note]
	vips    map[netip.Addr]int // how many Services need the address

	have    state
	touched touched
	busy    busy // in Standby: what still has connections
}

// A state is what the kernel has of ours.
type state struct {
	services map[serviceKey]observed
	foreign  map[serviceKey]bool // virtual services of other programs
	entries  map[entry]note
	counts   map[set]int // of entries
	sets     map[set]shape
	vips     map[netip.Addr]bool
	device   bool
	others   map[netip.Addr]bool    // addresses on other devices of the node
	rules    *ruleset.Set[struct{}] // chains of ours, and the jumps to them
	relics   ruleset.Plan           // what removes the rules of a kube-proxy in its ipvs mode
	proxied  setsOf                 // its sets
}

// A shape is how the kernel's set of a name is made.
type shape uint8

const (
	missing shape = iota
	strange       // another program or version made it, without room for what ours has
	right
)

// touched is what may differ between what should be and what is.
type touched struct {
	services map[serviceKey]bool
	entries  map[entry]bool
	vips     map[netip.Addr]bool
	rules    bool // they depend on the node and the role alone
}

// claims are the Services that want the same virtual service, or the same entry, each with
// what it wants of it. Mostly there is one.
type claims[T any] []claim[T]

type claim[T any] struct {
	name  sdk.Name
	value T
}

// with puts the newest claim first.
func (c claims[T]) with(name sdk.Name, value T) claims[T] {
	return append(claims[T]{{name, value}}, c.without(name)...)
}

func (c claims[T]) without(name sdk.Name) claims[T] {
	return slices.DeleteFunc(slices.Clone(c), func(c claim[T]) bool { return c.name == name })
}

func newObjects(of sdk.Family) *objects {
	o := &objects{
		node:    nodeConfig{family: of},
		marks:   newMarks(),
		desired: make(map[sdk.Name]desired),
		specs:   make(map[serviceKey]claims[spec]),
		entries: make(map[entry]claims[note]),
		vips:    make(map[netip.Addr]int),
		have:    newState(of),
		touched: newTouched(),
	}
	o.touched.rules = true
	return o
}

func newState(of sdk.Family) state {
	return state{
		services: make(map[serviceKey]observed), foreign: make(map[serviceKey]bool), entries: make(map[entry]note),
		counts: make(map[set]int), sets: make(map[set]shape), vips: make(map[netip.Addr]bool), others: make(map[netip.Addr]bool),
		rules: ruleset.New(ruleConfig(of)),
	}
}

// add enters an entry, or another note of it.
func (h *state) add(e entry, n note) {
	if _, there := h.entries[e]; !there {
		h.counts[e.set]++
	}
	h.entries[e] = n
}

func (h *state) remove(e entry) {
	if _, there := h.entries[e]; there {
		h.counts[e.set]--
	}
	delete(h.entries, e)
}

func newTouched() touched {
	return touched{services: make(map[serviceKey]bool), entries: make(map[entry]bool), vips: make(map[netip.Addr]bool)}
}

// put says what Services need, in place of what they needed before.
func (o *objects) put(all map[sdk.Name]desired) {
	for name, d := range all {
		o.add(name, d)
	}
	for name, d := range all {
		o.remove(name, o.desired[name], d)
		o.desired[name] = d
		if d.empty() {
			delete(o.desired, name)
		}
		if d.mark == 0 {
			o.marks.leave(name)
		}
	}
}

func (d desired) empty() bool {
	return d.mark == 0 && len(d.specs) == 0 && len(d.entries) == 0 && len(d.vips) == 0
}

// add enters what d has, or what is now otherwise in it.
func (o *objects) add(name sdk.Name, d desired) {
	for at, spec := range d.specs {
		o.claim(at, o.specs[at].with(name, spec))
	}
	for e, n := range d.entries {
		o.hold(e, name, n)
	}
	for _, vip := range d.vips {
		o.vips[vip]++
		o.touched.vips[vip] = true
	}
}

// remove takes out what old had and d has not. Addresses are counted, and add has counted
// those of d once more.
func (o *objects) remove(name sdk.Name, old, d desired) {
	for at := range old.specs {
		if _, still := d.specs[at]; !still {
			o.claim(at, o.specs[at].without(name))
		}
	}
	for e := range old.entries {
		if _, still := d.entries[e]; !still {
			o.drop(e, name)
		}
	}
	for _, vip := range old.vips {
		if o.vips[vip]--; o.vips[vip] == 0 {
			delete(o.vips, vip)
		}
		o.touched.vips[vip] = true
	}
}

// claim replaces the claims to a virtual service. The entries that its owner needs go with it.
func (o *objects) claim(at serviceKey, all claims[spec]) {
	before, had := o.owner(at)
	if o.specs[at] = all; len(all) == 0 {
		delete(o.specs, at)
	}
	now, has := o.owner(at)
	if has {
		for e, n := range now.value.entries {
			o.hold(e, now.name, n)
		}
	}
	if had {
		for e := range before.value.entries {
			if _, still := now.value.entries[e]; !still || now.name != before.name {
				o.drop(e, before.name)
			}
		}
	}
	o.touched.services[at] = true
}

// owner is the claim to a virtual service that counts: one that names the address, if there is
// one.
func (o *objects) owner(at serviceKey) (claim[spec], bool) {
	all := o.specs[at]
	if len(all) == 0 {
		return claim[spec]{}, false
	}
	i := slices.IndexFunc(all, func(c claim[spec]) bool { return !c.value.any })
	return all[max(i, 0)], true
}

func (o *objects) hold(e entry, name sdk.Name, n note) {
	o.entries[e] = o.entries[e].with(name, n)
	o.touched.entries[e] = true
}

func (o *objects) drop(e entry, name sdk.Name) {
	if o.entries[e] = o.entries[e].without(name); len(o.entries[e]) == 0 {
		delete(o.entries, e)
	}
	o.touched.entries[e] = true
}

// touchAll says that everything may differ.
func (o *objects) touchAll() {
	touch(o.touched.services, maps.Keys(o.specs), maps.Keys(o.have.services))
	touch(o.touched.entries, maps.Keys(o.entries), maps.Keys(o.have.entries))
	touch(o.touched.vips, maps.Keys(o.vips), maps.Keys(o.have.vips))
	o.touched.rules = true
}

func touch[K comparable](touched map[K]bool, all ...iter.Seq[K]) {
	for _, some := range all {
		for k := range some {
			touched[k] = true
		}
	}
}

// service is the virtual service that there should be, in the present role, and
// the weight of its destinations. Standby catches nothing, so there is none at an address
// that the node has, unless it still has connections; Draining keeps all that there are,
// and is as ready as Standby to be Active.
func (o *objects) service(at serviceKey) (spec, int, bool) {
	c, ok := o.owner(at)
	if !ok {
		return spec{}, 0, false
	}
	_, there := o.have.services[at]
	switch o.role {
	case sdk.Active:
		return c.value, 1, true
	case sdk.Draining:
		if there {
			return c.value, 0, true
		}
	}
	elsewhere := at.mark != 0 || !o.have.others[at.addr.Addr()]
	return c.value, 0, elsewhere || there && o.busy.services[at]
}

// vip reports whether our device should have addr. One that another device had first
// is the node's already.
func (o *objects) vip(addr netip.Addr) bool {
	switch {
	case o.vips[addr] == 0:
		return false
	case o.have.vips[addr]:
		return o.role == sdk.Active || o.role == sdk.Draining || o.busy.addrs[addr]
	}
	return o.role == sdk.Active && !o.have.others[addr]
}

// entry is the note of e, if e should be there. The addresses on our device are in a
// set too.
func (o *objects) entry(e entry) (note, bool) {
	if e.set == bound {
		return note{}, o.vip(e.addr)
	}
	if n := o.entries[e]; len(n) > 0 {
		return n[0].value, true
	}
	return note{}, false
}

func (o *objects) boundEntry(addr netip.Addr) entry {
	return entry{set: bound, family: o.node.family, addr: addr}
}
