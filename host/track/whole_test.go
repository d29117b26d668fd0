// SPDX-License-Identifier: Apache-2.0

package track

import (
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestWhole: what a session would be handed first, without one: neither what needs a missing feature,
// nor what is quarantined, and nothing reports that.
func TestWhole(t *testing.T) {
	t.Parallel()
	if _, known := New(nil).Whole(everything.Features, nil); known {
		t.Error("before the caches are full everything is known")
	}
	tracker, _, notices := followed(t)
	tracker.SetService(newService("api", "172.30.0.2"))
	before := len(*notices)
	u, known := tracker.Whole(everything.Features, nil)
	if !known || !u.Full || u.Node == nil || len(u.Set) != 2 || u.Set[1].Name != web || len(u.Set[1].Cluster) != 2 {
		t.Errorf("%+v, %t", u, known)
	}
	u, _ = tracker.Whole(everything.Features, []sdk.Name{web})
	if len(u.Set) != 1 || u.Set[0].Name == web || !slices.Equal(u.Keep, []sdk.Name{web}) {
		t.Errorf("with one quarantined: %+v", u)
	}
	if u, _ := tracker.Whole([]sdk.Feature{sdk.FeatureIPv6}, nil); len(u.Set) > 0 {
		t.Errorf("without IPv4: %+v", u)
	}
	if len(*notices) != before {
		t.Errorf("notices: %v", (*notices)[before:])
	}
}
