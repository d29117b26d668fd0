// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// A value counts in the bucket of the first bound that is not below it.
func TestHistogram(t *testing.T) {
	h := sdk.NewHistogram("m", nil, 1, 2, 4)
	for _, v := range []float64{0, 1, 1.5, 2, 4, 4.5, 100} {
		h.Observe(v)
	}
	if want := []uint64{2, 2, 1, 2}; !slices.Equal(h.Counts, want) || h.Sum != 113 {
		t.Errorf("%v of sum %g, want %v of 113", h.Counts, h.Sum, want)
	}
	before := h.Clone()
	h.Observe(0)
	if before.Counts[0] != 2 || h.Counts[0] != 3 {
		t.Errorf("a clone shares its counts: %v, %v", before.Counts, h.Counts)
	}
}
