// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A table says which Service is desired where, and which one has each place. It knows no
// socket: what is open follows it (see plan.go).
type table struct {
	desired map[sdk.Name]*desired
	places  map[place][]claim // the first one has the place
	puts    uint64            // how many there were: the age of the next
}

func newTable() table {
	return table{desired: make(map[sdk.Name]*desired), places: make(map[place][]claim)}
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
}

func (t *table) remove(c claim) {
	rivals := slices.DeleteFunc(t.places[c.place], func(r claim) bool { return r.name == c.name })
	if len(rivals) == 0 {
		delete(t.places, c.place)
	} else {
		t.places[c.place] = rivals
	}
}
