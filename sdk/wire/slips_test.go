// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// What an author writes where a schema belongs comes in only if it is JSON: the host shows it within JSON of its own.
func TestASchemaIsJSON(t *testing.T) {
	r := local(t, &subject{})
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
