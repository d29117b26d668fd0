// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// The rules in the other backend may be all that serves a Service that failed, or while the kernel is unknown.
func TestServesAll(t *testing.T) {
	d := &Dataplane[int]{families: []*family[int]{{known: true}}}
	all := d.servesAll()
	d.failed = map[sdk.Name]bool{{Service: "web"}: true}
	failed := d.servesAll()
	d.failed, d.families[0].known = nil, false
	if unknown := d.servesAll(); !all || failed || unknown {
		t.Errorf("all Services %t, one failed %t, the kernel is unknown %t", all, failed, unknown)
	}
}
