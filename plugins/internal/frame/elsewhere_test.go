// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// What the other backend has may be all that serves a Service which failed.
func TestServesAll(t *testing.T) {
	name := sdk.Name{Namespace: "shop", Service: "web"}
	for _, c := range []struct {
		what  string
		known bool
		lacks map[sdk.Name]bool
		want  bool
	}{
		{"all is served", true, nil, true},
		{"a Service failed", true, map[sdk.Name]bool{name: true}, false},
		{"what was written last may not be there", false, nil, false},
	} {
		d := &Dataplane[int]{failed: c.lacks, families: []*family[int]{{adopted: c.known}}}
		if got := d.servesAll(); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}
