// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"slices"
	"testing"
)

// Few chains are declared in the given order, and many in random order, each once. For legacy many are declared in
// the order of their names.
func TestDeclared(t *testing.T) {
	for _, count := range []int{many, 500} {
		var b Block
		var names []string
		for i := range count {
			names = append(names, fmt.Sprintf("KUBE-SVC-%04d", count-i))
			b.Whole = append(b.Whole, Chain{ID: inNat(names[i])})
		}
		sorted := slices.Sorted(slices.Values(names))
		if legacy := b.declared(Legacy); !slices.Equal(legacy, sorted) && !slices.Equal(legacy, names) || slices.Equal(legacy, names) != (count <= many) {
			t.Errorf("for legacy, %d chains are declared as %v", count, legacy)
		}
		got := b.declared(NFT)
		if slices.Equal(got, names) != (count <= many) || !slices.Equal(slices.Sorted(slices.Values(got)), sorted) {
			t.Errorf("for nft, %d chains are declared as %v", count, got)
		}
		// A quicksort is fast only if its pivot, the first element, is not near either end of the sorted names.
		if at, _ := slices.BinarySearch(sorted, got[0]); count > many && (at < count/20 || at > count-count/20) {
			t.Errorf("%[2]d of %[1]d are sorted before the first", count, at)
		}
	}
}
