// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestAssignSlots checks, for random pairs of lists, that the result has each element of the new list once, and that
// elements of the old list keep their slots if these are within the new length.
func TestAssignSlots(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	some := func() []int {
		all := random.Perm(12)[:random.IntN(13)]
		for i := range all {
			all[i]++ // zero means an empty slot
		}
		return all
	}
	for range 2000 {
		old, list := some(), some()
		got := assignSlots(old, list)
		if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(list))) {
			t.Fatalf("assignSlots(%v, %v) = %v", old, list, got)
		}
		for i, one := range old[:min(len(old), len(list))] {
			if slices.Contains(list, one) && got[i] != one {
				t.Fatalf("assignSlots(%v, %v) = %v: %d moved", old, list, got, one)
			}
		}
	}
}

// TestSpans checks that spans contain the addresses of the ranges and no others, are sorted, and do not touch.
func TestSpans(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var ranges []netip.Prefix
		for range random.IntN(6) {
			ranges = append(ranges, netip.PrefixFrom(netip.AddrFrom4([4]byte{255, 255, 255, byte(random.IntN(256))}), 24+random.IntN(9)))
		}
		spans := spans(ranges)
		for i := range spans[:max(len(spans)-1, 0)] {
			if !spans[i].To.Next().Less(spans[i+1].From) {
				t.Fatalf("spans(%v) = %v", ranges, spans)
			}
		}
		for last := range 256 {
			addr := netip.AddrFrom4([4]byte{255, 255, 255, byte(last)})
			in := slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(addr) })
			has := slices.ContainsFunc(spans, func(s span) bool { return !addr.Less(s.From) && !s.To.Less(addr) })
			if in != has {
				t.Fatalf("spans(%v) = %v: %s is in only one of them", ranges, spans, addr)
			}
		}
	}
	if got := spans([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("0.0.0.0/0")}); got != nil {
		t.Errorf("spans of all addresses = %v, want nil", got)
	}
}
