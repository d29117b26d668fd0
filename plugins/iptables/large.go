// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// Ceiling is how many endpoints one Service may have, in one family.
const Ceiling = 100_000

// slice is how many lines of a large Service are written at once. Another call waits for
// so many at most.
func (s *familyRules) slice() int {
	if s.Tool.Backend == iptables.NFT {
		return 8000
	}
	return 20_000 // legacy copies the whole table each time
}

// Divide writes first the chains that the Service's own lead to: nothing leads to them yet,
// or they serve it already. Those, the parts of its lists and its endpoints' chains, are
// almost all that it needs.
func (f *family) Divide(name sdk.Name, desired ruleset.Desired, more bool) (next ruleset.Desired, left int) {
	slice := f.rules.slice()
	below, there := f.rules.missing(desired, slice)
	if ruleset.Lines(below) <= slice {
		return desired, 0
	}
	next, had := f.rules.Owners()[name]
	if !had {
		next = f.rules.keep(name) // what a process before this one made of it
	}
	if more {
		some := ruleset.Size{Chains: slice, Lines: slice}.Cut(below)[0]
		below = below[len(some):]
		there = append(there, some...)
	}
	return next.With(there), ruleset.Lines(below)
}

// Behind reports whether chains that are of no use any more are left to be removed.
func (f *family) Behind() bool { return f.rules.Pending() }

// missing are the chains that d's own lead to and that the kernel does not have so, each
// behind those that it leads to itself; and those that are there. Of what has so few lines
// neither is asked for.
func (s *familyRules) missing(d ruleset.Desired, few int) (below, there []iptables.Chain) {
	if ruleset.Lines(d.Chains) <= few {
		return nil, nil
	}
	for _, c := range d.Chains {
		switch {
		case !isSpare(c.ID):
		case s.Has(c):
			there = append(there, c)
		default:
			below = append(below, c)
		}
	}
	slices.SortStableFunc(below, func(x, y iptables.Chain) int { return cmp.Compare(rank(x), rank(y)) })
	return below, there
}
