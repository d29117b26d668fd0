// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A table says who claims which place, and whose each place is. It knows no
// socket: what is open follows it (see plan.go).
type table struct {
	claims map[sdk.Name][]claim
	places map[place][]claim // the first one has the place
}

func newTable() table {
	return table{claims: make(map[sdk.Name][]claim), places: make(map[place][]claim)}
}

// put replaces what name claims, and returns what it claimed before. Of two that
// claim a place in the same way, the one put last has it.
func (t *table) put(name sdk.Name, claims []claim) (before []claim) {
	before = t.take(name)
	for _, c := range claims {
		first, _ := t.rank(c)
		t.insert(c, first)
	}
	t.hold(name, claims)
	return before
}

// restore gives name the claims of before back, behind what others have claimed
// since.
func (t *table) restore(name sdk.Name, before []claim) {
	t.take(name)
	for _, c := range before {
		_, last := t.rank(c)
		t.insert(c, last)
	}
	t.hold(name, before)
}

// owner is who has p.
func (t *table) owner(p place) (claim, bool) {
	if rivals := t.places[p]; len(rivals) > 0 {
		return rivals[0], true
	}
	return claim{}, false
}

// rank is where among its rivals c may stand: before all that name their address
// no better, or behind all that name it as well.
func (t *table) rank(c claim) (first, last int) {
	rivals := t.places[c.place]
	exact := 0
	for exact < len(rivals) && !rivals[exact].every() {
		exact++
	}
	if c.every() {
		return exact, len(rivals)
	}
	return 0, exact
}

func (t *table) insert(c claim, at int) {
	t.places[c.place] = slices.Insert(t.places[c.place], at, c)
}

// take takes name's claims out.
func (t *table) take(name sdk.Name) []claim {
	claims := t.claims[name]
	for _, c := range claims {
		rivals := slices.DeleteFunc(t.places[c.place], func(r claim) bool { return r.name == name })
		if len(rivals) == 0 {
			delete(t.places, c.place)
		} else {
			t.places[c.place] = rivals
		}
	}
	return claims
}

func (t *table) hold(name sdk.Name, claims []claim) {
	if len(claims) == 0 {
		delete(t.claims, name)
	} else {
		t.claims[name] = claims
	}
}
