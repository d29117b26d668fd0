// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// A book is what the kernel should have in one family, and what it has as far as we
// know. Only what was touched since the two were last the same is compared.
type book struct {
	ground ground
	role   sdk.Role
	marks  marks
	pieces map[sdk.Name]piece

	places  map[server]claims
	entries map[entry]notes
	vips    map[netip.Addr]int // how many pieces need the address

	have    state
	touched touched
	busy    busy // in Standby: what still has connections
}

// A state is what the kernel has of ours.
type state struct {
	servers map[server]virtual
	foreign map[server]bool // virtual servers of somebody else
	entries map[entry]note
	counts  map[set]int // of entries
	sets    map[set]shape
	vips    map[netip.Addr]bool
	device  bool
	others  map[netip.Addr]bool    // addresses on other devices of the node
	rules   *ruleset.Set[struct{}] // chains of ours, and the jumps to them: only what the kernel has
	strays  []iptables.Jump        // of kube-proxy in its ipvs mode, which we replace
	relics  []iptables.ID          // and its chains

	held map[iptables.ID]iptables.ID // those of its chains to which foreign rules lead, and from where
}

// A shape is how the kernel's set of a name is made.
type shape uint8

const (
	missing shape = iota
	strange       // another made it, without room for notes
	right
)

// touched is what may differ between should and have.
type touched struct {
	servers map[server]bool
	entries map[entry]bool
	vips    map[netip.Addr]bool
}

// claims are the Services that want a virtual server at a place.
type claims []claim

type claim struct {
	name  sdk.Name
	place place
}

// notes are the Services that want an entry. Mostly there is one.
type notes []memo

type memo struct {
	name sdk.Name
	note note
}

func newBook(family sdk.Family) *book {
	return &book{
		ground:  ground{family: family},
		marks:   newMarks(),
		pieces:  make(map[sdk.Name]piece),
		places:  make(map[server]claims),
		entries: make(map[entry]notes),
		vips:    make(map[netip.Addr]int),
		have:    newState(),
		touched: newTouched(),
	}
}

func newState() state {
	return state{
		servers: make(map[server]virtual), foreign: make(map[server]bool), entries: make(map[entry]note),
		counts: make(map[set]int), sets: make(map[set]shape), vips: make(map[netip.Addr]bool), others: make(map[netip.Addr]bool),
		rules: ruleset.New(ruleset.Config[struct{}]{Ours: isOurs}),
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
	return touched{servers: make(map[server]bool), entries: make(map[entry]bool), vips: make(map[netip.Addr]bool)}
}

// put enters pieces in place of those that their Services had.
func (b *book) put(pieces map[sdk.Name]piece) {
	for name, p := range pieces {
		b.grow(name, p)
	}
	for name, p := range pieces {
		b.prune(name, b.pieces[name], p)
		b.pieces[name] = p
		if p.empty() {
			delete(b.pieces, name)
		}
		if p.mark == 0 {
			b.marks.leave(name)
		}
	}
}

func (p piece) empty() bool {
	return p.mark == 0 && len(p.places) == 0 && len(p.entries) == 0 && len(p.vips) == 0
}

// grow adds what p has, or what is now otherwise in it.
func (b *book) grow(name sdk.Name, p piece) {
	for at, place := range p.places {
		b.change(at, func(c claims) claims { return c.with(claim{name, place}) })
	}
	for e, n := range p.entries {
		b.hold(e, name, n)
	}
	for _, vip := range p.vips {
		b.vips[vip]++
		b.touched.vips[vip] = true
	}
}

// prune takes out what old had and p has not. Addresses are counted, and grow has
// counted those of p once more.
func (b *book) prune(name sdk.Name, old, p piece) {
	for at := range old.places {
		if _, still := p.places[at]; !still {
			b.change(at, func(c claims) claims { return c.without(name) })
		}
	}
	for e := range old.entries {
		if _, still := p.entries[e]; !still {
			b.drop(e, name)
		}
	}
	for _, vip := range old.vips {
		if b.vips[vip]--; b.vips[vip] == 0 {
			delete(b.vips, vip)
		}
		b.touched.vips[vip] = true
	}
}

// change lets edit work on the claims of a place. The entries that who has the place
// needs go with it.
func (b *book) change(at server, edit func(claims) claims) {
	before, had := b.places[at].first()
	after := edit(b.places[at])
	b.places[at] = after
	if len(after) == 0 {
		delete(b.places, at)
	}
	now, has := after.first()
	if has {
		for e, n := range now.place.entries {
			b.hold(e, now.name, n)
		}
	}
	if had {
		for e := range before.place.entries {
			if _, still := now.place.entries[e]; !still || now.name != before.name {
				b.drop(e, before.name)
			}
		}
	}
	b.touched.servers[at] = true
}

// first is the claim that counts: one that names the address, if there is one.
func (c claims) first() (claim, bool) {
	if i := slices.IndexFunc(c, func(c claim) bool { return !c.place.any }); i >= 0 {
		return c[i], true
	}
	if len(c) > 0 {
		return c[0], true
	}
	return claim{}, false
}

// with puts the newest claim first.
func (c claims) with(add claim) claims { return append(claims{add}, c.without(add.name)...) }

func (c claims) without(name sdk.Name) claims {
	return slices.DeleteFunc(slices.Clone(c), func(c claim) bool { return c.name == name })
}

func (b *book) hold(e entry, name sdk.Name, n note) {
	all := b.entries[e].without(name)
	b.entries[e] = append(notes{{name, n}}, all...)
	b.touched.entries[e] = true
}

func (b *book) drop(e entry, name sdk.Name) {
	b.entries[e] = b.entries[e].without(name)
	if len(b.entries[e]) == 0 {
		delete(b.entries, e)
	}
	b.touched.entries[e] = true
}

func (n notes) without(name sdk.Name) notes {
	return slices.DeleteFunc(slices.Clone(n), func(m memo) bool { return m.name == name })
}

// setGround changes what the node is like. Services must be rendered again if it is
// another.
func (b *book) setGround(g ground) { b.ground = g }

// touchAll says that everything may differ.
func (b *book) touchAll() {
	for s := range b.places {
		b.touched.servers[s] = true
	}
	for s := range b.have.servers {
		b.touched.servers[s] = true
	}
	for e := range b.entries {
		b.touched.entries[e] = true
	}
	for e := range b.have.entries {
		b.touched.entries[e] = true
	}
	for a := range b.vips {
		b.touched.vips[a] = true
	}
	for a := range b.have.vips {
		b.touched.vips[a] = true
	}
}

// server is the virtual server that should be at a place, in the present role, and
// the weight of its reals. Standby catches nothing, so there is none at an address
// that the node has, unless it still has connections; Draining keeps all that there are,
// and is as ready as Standby to be Active.
func (b *book) server(at server) (place, int, bool) {
	c, ok := b.places[at].first()
	if !ok {
		return place{}, 0, false
	}
	_, there := b.have.servers[at]
	switch b.role {
	case sdk.Active:
		return c.place, 1, true
	case sdk.Draining:
		if there {
			return c.place, 0, true
		}
	}
	elsewhere := at.mark != 0 || !b.have.others[at.addr.Addr()]
	return c.place, 0, elsewhere || there && b.busy.servers[at]
}

// vip reports whether our device should have addr. One that another device had first
// is the node's already.
func (b *book) vip(addr netip.Addr) bool {
	switch {
	case b.vips[addr] == 0:
		return false
	case b.have.vips[addr]:
		return b.role == sdk.Active || b.role == sdk.Draining || b.busy.addrs[addr]
	}
	return b.role == sdk.Active && !b.have.others[addr]
}

// entry is the note of e, if e should be there. The addresses on our device are in a
// set too.
func (b *book) entry(e entry) (note, bool) {
	if e.set == bound {
		return note{}, b.vip(e.addr)
	}
	if n := b.entries[e]; len(n) > 0 {
		return n[0].note, true
	}
	return note{}, false
}

func (b *book) boundEntry(addr netip.Addr) entry {
	return entry{set: bound, family: b.ground.family, addr: addr}
}
