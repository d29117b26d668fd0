// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestBisect finds every culprit, nothing else, and soon.
func TestBisect(t *testing.T) {
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
		tries := 0
		b := bisect(names)
		for group := b.next(); group != nil; group = b.next() {
			tries++
			b = b.tried(slices.ContainsFunc(group, func(n sdk.Name) bool { return poison[n] }))
		}
		if len(b.culprits) != len(poison) {
			t.Fatalf("seed %d: found %v, want %v", seed, b.culprits, poison)
		}
		for _, n := range b.culprits {
			if !poison[n] {
				t.Fatalf("seed %d: nothing crashes on %s", seed, n)
			}
		}
		if most := 2 + len(poison)*2*15; tries > most {
			t.Errorf("seed %d: %d tries for %d among %d, want %d at the most", seed, tries, len(poison), len(names), most)
		}
	}
}
