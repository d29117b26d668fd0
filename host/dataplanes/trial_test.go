// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestOnTrial gives who is tried a role in which it changes nothing that serves.
func TestOnTrial(t *testing.T) {
	for role, limits := range map[sdk.Role][]sdk.Limit{
		sdk.Yielded: {sdk.LimitNoDrop},                           // or it would take away what catches packets
		sdk.Standby: {sdk.LimitNoDrop, sdk.LimitDiesWithProcess}, // which has died with the one before
	} {
		if got := onTrial(sdk.Description{Limits: limits}); got != role {
			t.Errorf("one with the limits %v is tried in %s, want %s", limits, got, role)
		}
	}
}
