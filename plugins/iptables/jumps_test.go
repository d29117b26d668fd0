// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// TestJumpsKeepTheirOrder: the jumps at the built-in chains stand as on a fresh node after
// any change of role. The guard goes before what accepts packets.
func TestJumpsKeepTheirOrder(t *testing.T) {
	node := sdk.Node{Addrs: []netip.Addr{v4(192<<24 | 2<<8 | 10)}, NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, MasqueradeBit: 14}
	walk := func(roles ...sdk.Role) map[iptables.ID][]iptables.Rule {
		b := tablesOf(sdk.IPv4, node, nil)
		b.node.localhost = true
		kernel := make(map[iptables.ID][]iptables.Rule)
		for _, role := range roles {
			b.lead(role)
			p := b.Plan()
			for _, block := range p {
				for _, j := range block.Delete {
					i := slices.Index(kernel[j.At], j.Rule)
					if i < 0 {
						t.Fatalf("deletes %s from %s, where it is not", j.Rule, j.At)
					}
					kernel[j.At] = slices.Delete(kernel[j.At], i, i+1)
				}
				for _, j := range block.Insert {
					kernel[j.At] = slices.Insert(kernel[j.At], 0, j.Rule)
				}
			}
			b.Done(p)
		}
		maps.DeleteFunc(kernel, func(_ iptables.ID, rules []iptables.Rule) bool { return len(rules) == 0 })
		return kernel
	}
	fresh := walk(sdk.Active)
	if first := fresh[filter("INPUT")]; len(first) == 0 || first[0].Target() != guard {
		t.Fatalf("a fresh node's INPUT is %q", first)
	}
	for _, roles := range [][]sdk.Role{
		{sdk.Active, sdk.Draining, sdk.Active},
		{sdk.Active, sdk.Standby, sdk.Active},
		{sdk.Active, sdk.Draining, sdk.Standby, sdk.Active},
		{sdk.Draining, sdk.Active, sdk.Active},
	} {
		if got := walk(roles...); !maps.EqualFunc(got, fresh, slices.Equal) {
			t.Errorf("after %v:\n%q\nwant\n%q", roles, got, fresh)
		}
	}
}
