// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// The rules in the other backend may be all that serves a Service that failed.
func TestServesAll(t *testing.T) {
	name := sdk.Name{Namespace: "shop", Service: "web"}
	for _, c := range []struct {
		what   string
		known  bool
		failed map[sdk.Name]bool
		want   bool
	}{
		{"all Services are served", true, nil, true},
		{"a Service failed", true, map[sdk.Name]bool{name: true}, false},
		{"the state of the kernel is unknown", false, nil, false},
	} {
		d := &Dataplane[int]{failed: c.failed, families: []*family[int]{{known: c.known}}}
		if got := d.servesAll(); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}
