// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// An Element is one of a set of the table.
type Element struct {
	Set string
	nftnl.Element
}

// A Place is where an element is: no two are in one.
type Place struct{ set, key, end string }

// Place is where e is.
func (e Element) Place() Place { return Place{e.Set, e.Key, e.KeyEnd} }

// element is one that is nothing but where it is.
func (p Place) element() Element {
	return Element{p.set, nftnl.Element{Key: p.key, KeyEnd: p.end}}
}

// A Use is what the elements of a set are for.
type Use uint8

const (
	// OfOne is the use of elements that one Service has.
	OfOne Use = iota

	// OfMany is that of elements that are there while any Service has them. They have no data.
	OfMany

	// Admitting is that of elements of one Service by which packets leave elements in other sets
	// (Layout.Left). They go in a batch before the rest of a change, so that packets leave no more.
	Admitting

	// OfNone is that of elements of no Service (Layout.Fixed).
	OfNone
)

// A Difference is elements that go and that come. One that is replaced is in both.
type Difference struct{ Gone, Come []Element }

// Empty reports whether nothing differs.
func (d Difference) Empty() bool { return len(d.Gone)+len(d.Come) == 0 }

// Diff is what leads from elements to others.
func Diff(old, desired []Element) (d Difference) {
	if len(old) == 0 {
		return Difference{Come: desired}
	}
	was := make(map[Place]Element, len(old))
	for _, e := range old {
		was[e.Place()] = e
	}
	for _, e := range desired {
		before, there := was[e.Place()]
		if !there || before != e {
			d.Come = append(d.Come, e)
		}
		if !there || before == e {
			delete(was, e.Place())
		}
	}
	for _, e := range old {
		if _, left := was[e.Place()]; left {
			d.Gone = append(d.Gone, e)
			delete(was, e.Place())
		}
	}
	return d
}
