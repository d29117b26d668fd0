// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

func service(name string) sdk.Name {
	return sdk.Name{Namespace: "shop", Service: name, Protocol: sdk.TCP, Family: sdk.IPv4}
}

// TestLosses says what a swap would take from whom, and nothing else.
func TestLosses(t *testing.T) {
	now := track.CursorStatus{
		Failed: []sdk.Failure{{Name: service("broken"), Err: errors.New("no room")}},
	}
	next := track.CursorStatus{
		Failed:   []sdk.Failure{{Name: service("broken"), Err: errors.New("no room")}, {Name: service("fresh"), Err: errors.New("no room")}, {Name: sdk.Name{Namespace: canary.Namespace, Service: "canary"}, Err: errors.New("taken")}},
		Withheld: []track.Withheld{{Name: service("phone"), Lacks: []sdk.Feature{"sctp"}}},
	}
	want := []string{"shop/fresh/tcp4: no room", "shop/phone/tcp4: the dataplane does not serve sctp"}
	if got := losses(now, next); !slices.Equal(got, want) {
		t.Errorf("a swap loses %q, want %q", got, want)
	}
}
