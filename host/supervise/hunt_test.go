// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestHunt finds every culprit, nobody else, and soon.
func TestHunt(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		names := make([]sdk.Name, 1+r.IntN(10000))
		for i := range names {
			names[i] = sdk.Name{Service: fmt.Sprint(i)}
		}
		poison := make(map[sdk.Name]bool)
		for range r.IntN(4) {
			poison[names[r.IntN(len(names))]] = true
		}
		trials := 0
		h := NewHunt(names)
		for group := h.Next(); group != nil; group = h.Next() {
			trials++
			h = h.Told(slices.ContainsFunc(group, func(n sdk.Name) bool { return poison[n] }))
		}
		if len(h.Guilty) != len(poison) {
			t.Fatalf("seed %d: found %v, want %v", seed, h.Guilty, poison)
		}
		for _, n := range h.Guilty {
			if !poison[n] {
				t.Fatalf("seed %d: %s is innocent", seed, n)
			}
		}
		if most := 2 + len(poison)*2*15; trials > most {
			t.Errorf("seed %d: %d trials for %d among %d, want %d at the most", seed, trials, len(poison), len(names), most)
		}
	}
}
