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
	for _, count := range []int{3, many, 500} {
		var b Block
		var names []string
		for i := range count {
			name := fmt.Sprintf("KUBE-SVC-%04d", i)
			names = append(names, name)
			b.Whole = append(b.Whole, Chain{ID: ID{"nat", name}})
		}
		got := b.declared(NFT)
		if inOrder := slices.Equal(got, names); inOrder != (count <= many) {
			t.Errorf("%d chains are declared in order: %t", count, inOrder)
		}
		// A quicksort is fast only if its pivot, the first element, is not near either end of the sorted names.
		smaller := 0
		for _, name := range got {
			if name < got[0] {
				smaller++
			}
		}
		if count > many && (smaller < count/20 || smaller > count-count/20) {
			t.Errorf("%[2]d of %[1]d are sorted before the first", count, smaller)
		}
		slices.Sort(got)
		if !slices.Equal(got, names) {
			t.Errorf("%d chains: those declared are %v", count, got)
		}
		slices.Reverse(b.Whole)
		if legacy := b.declared(Legacy); slices.Equal(legacy, names) != (count > many) {
			t.Errorf("for legacy, %d chains are declared as %v", count, legacy)
		}
	}
}
