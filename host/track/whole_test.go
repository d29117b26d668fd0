// SPDX-License-Identifier: Apache-2.0

package track

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestWhole: Whole returns the first Full of a session without Services that need a missing
// feature, and reports nothing.
func TestWhole(t *testing.T) {
	t.Parallel()
	if _, known := New(nil).Whole(everything.Features); known {
		t.Error("Whole returns a Full before Synced")
	}
	tracker, _, notices := followedTracker(t)
	tracker.SetService(newService("api", "172.30.0.2"))
	before := len(*notices)
	u, known := tracker.Whole(everything.Features)
	if !known || !u.Full || u.Node == nil || len(u.Set) != 2 || u.Set[1].Name != web || len(u.Set[1].Cluster) != 2 {
		t.Errorf("%+v, %t", u, known)
	}
	if u, _ := tracker.Whole([]sdk.Feature{sdk.FeatureIPv6}); len(u.Set) > 0 {
		t.Errorf("without IPv4: %+v", u)
	}
	if len(*notices) != before {
		t.Errorf("notices: %v", (*notices)[before:])
	}
}
