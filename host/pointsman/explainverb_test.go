// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
)

// TestWaysOf: ways with the same result are listed once.
func TestWaysOf(t *testing.T) {
	drop := admin.Way{Verdict: "drop", To: "10.0.0.1:80"}
	there := admin.Way{Verdict: "drop", To: "10.0.0.2:80"}
	if got := waysOf([]admin.Way{drop, there, {Verdict: "forward", To: "10.0.0.3:80"}}); !slices.Equal(got, []string{"drop", "forward to 10.0.0.3:80"}) {
		t.Errorf("%q", got)
	}
}
