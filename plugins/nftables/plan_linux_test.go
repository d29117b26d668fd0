// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// planned is what another process says that it would write for s.
func (k kernel) planned(s sdktest.Scenario) []string {
	k.Helper()
	p := New(k.dir).(*plugin)
	defer p.die()
	r, err := p.Plan(k.Context(), sdk.Setup{Options: k.options()}, s.Update(1))
	if err != nil || len(r.Failed) > 0 {
		k.Fatalf("plan: %+v, %v", r, err)
	}
	return r.Steps
}

// Beside the writer another process names what differs, element by element, and changes nothing: of
// what stands, nothing; and of what others do while the writer does not look, that alone.
func TestKernelPlanNamesDrift(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s := k.parsed(g, sticking)
		s.Services[0].Affinity = 0
		p, _ := k.active(g, s)
		if got := k.planned(s); len(got) > 0 {
			k.Errorf("of what stands it would write %q", got)
		}
		if k.protect == "auto" {
			return // no other program can change the table
		}
		for _, c := range []struct{ harm, step, detail string }{
			{"flush chain ip pointsman service", "ipv4 pointsman: rewrite chain service with ", "  it has 0, which differ from number 1 on"},
			{"insert rule ip pointsman far drop", "ipv4 pointsman: rewrite chain far with ", "  it has "},
			{"delete element ip pointsman of-4 { 172.30.0.41 . tcp . 80 }", "ipv4 pointsman: remove 0 elements, add 1 (of-4)", "  + of-4 172.30.0.41 . tcp . 80"},
			{"add element ip pointsman own { 192.0.2.99 }", "ipv4 pointsman: remove 1 elements (own), add 0", "  - own 192.0.2.99"},
			{"flush map ip pointsman endpoints", "ipv4 pointsman: ", "  + endpoints 172.30.0.41 . tcp . 80 . 0 : 10.180."},
			{"flush chain ip pointsman nat-prerouting; delete chain ip pointsman nat-prerouting", "ipv4 pointsman: add chain nat-prerouting with ", ""},
		} {
			err := p.Do(k.Context(), func(map[sdk.Name]sdk.Service) error { // the writer does nothing meanwhile
				k.nft(strings.Split(c.harm, " ")...)
				before := k.text()
				got := k.planned(s)
				for _, want := range []string{c.step, c.detail} {
					if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, want) }) {
						k.Errorf("nft %s: no line begins with %q in %q", c.harm, want, got)
					}
				}
				if now := k.text(); now != before {
					k.Errorf("nft %s: the plan changed the table", c.harm)
				}
				return nil
			})
			if err != nil {
				k.Fatal(err)
			}
			k.sync(p, s.Update(1))
		}
	})
}
