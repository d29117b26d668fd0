// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestJumpsAreListed: whatever is not listed, nobody takes out again.
func TestJumpsAreListed(t *testing.T) {
	for _, j := range (ground{localhost: true}).jumps(sdk.Active) {
		if !j.Listed() {
			t.Errorf("%s: %s is not listed", j.At, j.Rule)
		}
	}
}
