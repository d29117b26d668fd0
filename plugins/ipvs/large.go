// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// Ceiling is how many endpoints one Service may have, in one family. The kernel keeps the
// endpoints of a virtual service in a list and searches all of it for each that comes, so
// the time grows with the square of their number.
const Ceiling = 20_000

// slice is how many endpoints of a large Service are written at once. Another call waits
// for so many at most.
const slice = 1000

// Divide has the endpoints that the kernel lacks come in slices. Where the role has no
// virtual service nothing gets less, and all of it is put in.
func (f *family) Divide(name sdk.Name, desired desired, more bool) (next desired, left int) {
	lacks := f.objects.lacks(desired)
	if lacks <= slice {
		return desired, 0
	}
	if !more {
		next, had := f.objects.desired[name]
		if !had {
			next = f.objects.keep(name) // what a process before this one made of it
		}
		return next, lacks
	}
	if put, had := f.objects.desired[name]; had && f.objects.lacks(put) > 0 {
		return desired, 0 // what was put before did not come: no virtual service has it
	}
	return f.objects.upTo(desired, slice)
}

// Behind is false: what is of no use any more goes with each plan.
func (f *family) Behind() bool { return false }

// lacks is how many endpoints of p the kernel does not have.
func (o *objects) lacks(p desired) int {
	n := 0
	for at, spec := range p.specs {
		n += len(spec.dests) - o.has(at, spec)
	}
	return n
}

// has is how many of the endpoints of a virtual service the kernel has.
func (o *objects) has(at serviceKey, p spec) int {
	n := 0
	dests := o.have.services[at].dests
	for _, dest := range p.dests {
		if _, there := dests[dest]; there {
			n++
		}
	}
	return n
}

// upTo is p with those endpoints that the kernel has, and n more of each virtual service; and how
// many are left then.
func (o *objects) upTo(p desired, n int) (some desired, left int) {
	some = p
	some.specs = make(map[serviceKey]spec, len(p.specs))
	for at, spec := range p.specs {
		dests, more := o.have.services[at].dests, 0
		spec.dests = slices.DeleteFunc(slices.Clone(spec.dests), func(dest netip.AddrPort) bool {
			_, there := dests[dest]
			if there {
				return false
			}
			more++
			return more > n
		})
		left += max(0, more-n)
		some.specs[at] = spec
	}
	return some, left
}
