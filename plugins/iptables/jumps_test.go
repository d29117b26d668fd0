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

// TestJumpsKeepTheirOrder checks that, after any change of role, the jumps in the built-in chains have the same order
// as on a fresh node. The jump to the guard comes before rules that accept packets.
func TestJumpsKeepTheirOrder(t *testing.T) {
	node := sdk.Node{Addrs: []netip.Addr{v4(192<<24 | 2<<8 | 10)}, NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, MasqueradeBit: 14}
	walk := func(roles ...sdk.Role) iptables.Tables {
		b := tablesOf(t, sdk.IPv4, node, nil)
		b.node.localhost = true
		b.setNode(b.node)
		for _, role := range roles {
			b.SetRole(role)
			b.updateJumps()
			b.write(t, nil)
		}
		all := maps.Clone(b.fake.Tables)
		maps.DeleteFunc(all, func(id iptables.ID, rules []iptables.Rule) bool { return isOurs(id) || len(rules) == 0 })
		return all
	}
	fresh := walk(sdk.Active)
	if first := fresh[filter("INPUT")]; len(first) == 0 || first[0].Target() != localnetGuard {
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
