// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// Jumps that are not listed would never be removed.
func TestJumpsAreListed(t *testing.T) {
	f := nodeConfig{family: sdk.IPv4, node: sdk.Node{MasqueradeBit: 14}}
	for _, j := range f.jumps(sdk.Active) {
		if !j.Listed() {
			t.Errorf("%s: %s is not listed", j.At, j.Rule)
		}
	}
}

// The rules of each scenario can be written and removed in pieces, each of which the kernel accepts. What is written is read
// back as desired.
func TestRulesInPieces(t *testing.T) {
	ranged := manyServices(1000)
	for i := range ranged {
		ranged[i].Frontends[0].Sources = []netip.Prefix{sourceRange("198.18.0.0/15")}
	}
	for _, scenario := range append(sdktest.Scenarios(), sdktest.Scenario{Name: "many Services with source ranges", Node: bigNode(), Services: ranged}) {
		s := newScene(t, scenario.Node, scenario.Services)
		for _, family := range families {
			r := s.rules[family]
			r.Tool.Most = iptables.Limit{Chains: 3, Lines: 20}
			s.write(family, sdk.Standby)
			pieces := maps.Clone(r.Desired())
			s.write(family, sdk.Active)
			s.list(family)
			if again := s.write(family, sdk.Active); again != nil {
				t.Fatalf("%s: written, and still to be written:\n%s", scenario.Name, again)
			}
			for name := range pieces {
				pieces[name] = rules.Piece{}
			}
			r.SetDesired(pieces)
			s.write(family, sdk.Standby)
			for id, left := range s.fakes[family].Tables {
				if slices.ContainsFunc(left, func(r iptables.Rule) bool { return r.Comment() != "" }) {
					t.Errorf("%s: %s still has %q", scenario.Name, id, left)
				}
			}
		}
	}
}
