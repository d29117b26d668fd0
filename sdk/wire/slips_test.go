// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// An author who writes no JSON where a schema belongs is told, and the host, which shows
// it within JSON of its own, never gets it.
func TestASchemaIsJSON(t *testing.T) {
	r := local(t, &subject{})
	_, err := r.Configure(soon(t), sdk.Setup{Options: order{Schema: `{"type": object}`}.Options()})
	var refusal *sdk.Refusal
	if !errors.As(err, &refusal) || refusal.Field != "Description.Options" || !strings.Contains(refusal.Why, "invalid character 'o'") {
		t.Errorf("Configure: %v", err)
	}
	d, err := r.Configure(soon(t), sdk.Setup{Options: order{Schema: `{"type": "object"}`}.Options()})
	if err != nil || string(d.Options) != `{"type": "object"}` {
		t.Errorf("Configure: %s, %v", d.Options, err)
	}
	for said, want := range map[string]string{"{": "", "": "", "\x00": "", "{} {}": "", " {} ": " {} "} {
		if got := decodeDescription(&pb.Description{Options: []byte(said)}).Options; string(got) != want {
			t.Errorf("the options %q come in as %q, want %q", said, got, want)
		}
	}
}

// A Failure without an error is its author's slip, and no reason to die of.
func TestAFailureWithoutAReason(t *testing.T) {
	r := configured(t, local(t, &subject{}), order{})
	u := bulk(2, 1)
	u.Set[1].Hints = map[string]string{"fail": ""}
	result, err := r.Sync(soon(t), u)
	if err != nil || len(result.Failed) != 1 {
		t.Fatalf("%+v, %v", result, err)
	}
	if f := result.Failed[0]; f.Name != u.Set[1].Name || !strings.Contains(f.Err.Error(), "does not say why") {
		t.Errorf("%s failed: %v", f.Name, f.Err)
	}
}
