// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// A step is one thing to do to a socket.
type step struct {
	verb  verb
	claim claim // which the place is given to; for closing, only the place is set
}

// A verb is what a step does. They are in the order of a plan: a new Service
// can be reached before any is gone.
type verb uint8

const (
	open      verb = iota + 1 // a socket, which serves nothing yet
	give                      // an open socket to the Service that the claim names
	closeDown                 // a socket that no Service wants
)

var verbs = []string{open: "open", give: "give", closeDown: "close"}

func (s step) String() string {
	text := verbs[s.verb] + " " + s.claim.place.String()
	switch s.verb {
	case open:
		text += " for " + s.claim.name.String()
	case give:
		text += " to " + s.claim.name.String() + " as " + s.claim.frontend.String()
	}
	return text
}

// texts are steps for people.
func texts(steps []step) []string {
	var all []string
	for _, s := range steps {
		all = append(all, s.String())
	}
	return all
}

// A holder is what an open socket serves; one that was only opened has the zero one.
type holder struct {
	name     sdk.Name
	frontend sdk.Frontend
}

// holderOf is what s serves.
func holderOf(s relay.Socket) holder {
	t := s.Target()
	if t == nil {
		return holder{}
	}
	return holder{t.Service.Name(), t.Frontend}
}

func (h holder) holds(c claim) bool { return h.name == c.name && h.frontend.Equal(*c.frontend) }

// plan leads from the sockets that are open to those that t wants, at the places
// that a change touched. held is what a socket serves, if there is one.
func plan(touched []place, t *table, held func(place) (holder, bool)) []step {
	steps := make([]step, 0, 2*len(touched))
	for _, p := range touched {
		h, isOpen := held(p)
		c, owned := t.owner(p)
		wanted := owned && c.listens
		if wanted && !isOpen {
			steps = append(steps, step{open, c})
		}
		if wanted && !h.holds(c) {
			steps = append(steps, step{give, c})
		}
		if !wanted && isOpen {
			steps = append(steps, step{closeDown, claim{place: p}})
		}
	}
	slices.SortFunc(steps, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.verb, b.verb), a.claim.place.compare(b.claim.place))
	})
	return steps
}

// A table says which Service is desired where, and which one has each place. It knows no
// socket: what is open follows it (see plan.go).
type table struct {
	desired map[sdk.Name]*desired
	places  map[place][]claim  // the first one has the place
	named   map[netip.Addr]int // how many claims name an address themselves
	puts    uint64             // how many there were: the age of the next
}

func newTable() table {
	return table{desired: make(map[sdk.Name]*desired), places: make(map[place][]claim), named: make(map[netip.Addr]int)}
}

// put replaces what is desired of name, nil: nothing, and returns the places whose owner
// may be another now.
func (t *table) put(name sdk.Name, d *desired) (touched []place) {
	if before := t.desired[name]; before != nil {
		for _, c := range before.claims {
			t.remove(c)
			touched = append(touched, c.place)
		}
	}
	if d == nil {
		delete(t.desired, name)
		return touched
	}
	if d.age == 0 {
		t.puts++
		d.age = t.puts
	}
	t.desired[name] = d
	for _, c := range d.claims {
		t.insert(c, d.age)
		touched = append(touched, c.place)
	}
	return touched
}

// owner is the claim that has p.
func (t *table) owner(p place) (claim, bool) {
	if rivals := t.places[p]; len(rivals) > 0 {
		return rivals[0], true
	}
	return claim{}, false
}

// insert puts c before its rivals that name their address no better, and came earlier.
func (t *table) insert(c claim, age uint64) {
	rivals := t.places[c.place]
	at := slices.IndexFunc(rivals, func(r claim) bool {
		if r.every() != c.every() {
			return r.every()
		}
		return t.desired[r.name].age <= age
	})
	if at < 0 {
		at = len(rivals)
	}
	t.places[c.place] = slices.Insert(rivals, at, c)
	t.name(c, 1)
}

// name counts a claim that names its address, or one less.
func (t *table) name(c claim, n int) {
	if addr := c.place.addr.Addr(); !c.every() {
		if t.named[addr] += n; t.named[addr] == 0 {
			delete(t.named, addr)
		}
	}
}

func (t *table) remove(c claim) {
	t.name(c, -1)
	rivals := slices.DeleteFunc(t.places[c.place], func(r claim) bool { return r.name == c.name })
	if len(rivals) == 0 {
		delete(t.places, c.place)
	} else {
		t.places[c.place] = rivals
	}
}
