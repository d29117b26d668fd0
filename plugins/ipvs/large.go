// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// Ceiling is how many endpoints one Service may have, in one family. The kernel keeps the
// endpoints of a virtual server in a list and searches all of it for each that comes, so
// the time grows with the square of their number.
const Ceiling = 20_000

// slice is how many endpoints of a large Service are written at once. Another call waits
// for so many at most.
const slice = 1000

// tooMany refuses a Service whose lists are longer than this node is to have.
func tooMany(svc sdk.Service) error {
	n := max(len(svc.Cluster), len(svc.Local))
	if n <= Ceiling {
		return nil
	}
	return &sdk.Refusal{
		Field: "endpoints",
		Why:   fmt.Sprintf("%d are more than the %d that this dataplane serves for one port of a Service", n, Ceiling),
		Try:   "several Services, or the mode iptables",
	}
}

// Divide has the endpoints that the kernel lacks come in slices. Where the role has no
// virtual server nothing gets less, and the piece is put in whole.
func (s *side) Divide(name sdk.Name, desired piece, more bool) (next piece, left int) {
	lacks := s.book.lacks(desired)
	if lacks <= slice {
		return desired, 0
	}
	if !more {
		next, had := s.book.pieces[name]
		if !had {
			next = s.book.keep(name) // what a process before this one made of it
		}
		return next, lacks
	}
	if put, had := s.book.pieces[name]; had && s.book.lacks(put) > 0 {
		return desired, 0 // what was put before did not come: no virtual server has it
	}
	return s.book.upTo(desired, slice)
}

// Behind is false: what is of no use any more goes with each plan.
func (s *side) Behind() bool { return false }

// lacks is how many endpoints of p the kernel does not have.
func (b *book) lacks(p piece) int {
	n := 0
	for at, place := range p.places {
		n += len(place.reals) - b.has(at, place)
	}
	return n
}

// has is how many of a place's endpoints the kernel has.
func (b *book) has(at server, p place) int {
	n := 0
	reals := b.have.servers[at].reals
	for _, real := range p.reals {
		if _, there := reals[real]; there {
			n++
		}
	}
	return n
}

// upTo is p with those endpoints that the kernel has, and n more at each place; and how
// many are left then.
func (b *book) upTo(p piece, n int) (some piece, left int) {
	some = p
	some.places = make(map[server]place, len(p.places))
	for at, place := range p.places {
		reals, more := b.have.servers[at].reals, 0
		place.reals = slices.DeleteFunc(slices.Clone(place.reals), func(real netip.AddrPort) bool {
			_, there := reals[real]
			if there {
				return false
			}
			more++
			return more > n
		})
		left += max(0, more-n)
		some.places[at] = place
	}
	return some, left
}
