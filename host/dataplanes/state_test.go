// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// TestStateComesBack: what is written of a state and read again is the same, for everything that a
// Service can mean.
func TestStateComesBack(t *testing.T) {
	t.Parallel()
	for _, s := range sdktest.Scenarios() {
		u := s.Update(1)
		text, err := json.Marshal(StateOf(u))
		if err != nil {
			t.Fatal(err)
		}
		var read admin.State
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatalf("%s: %v:\n%s", s.Name, err, text)
		}
		got, err := UpdateOf(read)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if !got.Node.Equal(*u.Node) || !slices.EqualFunc(got.Set, u.Set, sdk.Service.Equal) || !got.Full {
			t.Errorf("%s: %+v comes back as %+v", s.Name, u, got)
		}
	}
}

// TestStateIsChecked: what is wrong in a state is named with its place.
func TestStateIsChecked(t *testing.T) {
	t.Parallel()
	_, err := UpdateOf(admin.State{Services: []admin.StateService{
		{Namespace: "shop", Service: "web", Protocol: "tpc", Family: "ipv4", Affinity: "3 hours", Frontends: []admin.StateFrontend{{Kind: "cluster-ip", Policy: "globe"}}},
	}})
	for _, part := range []string{"services[0] (shop/web): protocol: want one of [tcp udp sctp], not \"tpc\"", "policy: want one of [cluster local]", "3 hours"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want %q", err, part)
		}
	}
}
