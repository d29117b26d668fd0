// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"cmp"
	"net/netip"
	"slices"
)

// assignSlots returns list in the order of old as far as possible: elements that old has beyond the end of
// list, and new ones, fill the gaps. So few slots change. list must have no duplicates and no zero value.
func assignSlots[T comparable](old, list []T) []T {
	if len(old) == 0 || slices.Equal(old, list) {
		return list
	}
	left := make(map[T]bool, len(list))
	for _, one := range list {
		left[one] = true
	}
	var gap T
	places := make([]T, len(list))
	for i, one := range old[:min(len(old), len(list))] {
		if left[one] {
			places[i] = one
			delete(left, one)
		}
	}
	i := 0
	for _, one := range list {
		if !left[one] {
			continue
		}
		for places[i] != gap {
			i++
		}
		places[i] = one
	}
	return places
}

// A span is a range of addresses, both ends included, as an element of an interval set.
type span struct{ From, To netip.Addr }

// spans returns the addresses of all ranges as sorted spans that neither overlap nor touch: the kernel rejects
// overlapping intervals. Nil means all addresses.
func spans(ranges []netip.Prefix) []span {
	var all []span
	for _, r := range ranges {
		if r.Bits() == 0 {
			return nil
		}
		all = append(all, span{r.Masked().Addr(), lastAddr(r)})
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	var joined []span
	for _, s := range all {
		if n := len(joined); n > 0 && (!joined[n-1].To.Less(s.From) || joined[n-1].To.Next() == s.From) {
			if joined[n-1].To.Less(s.To) {
				joined[n-1].To = s.To
			}
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// lastAddr returns the last address of a range.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}
