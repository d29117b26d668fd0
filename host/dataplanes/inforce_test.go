// SPDX-License-Identifier: Apache-2.0

package dataplanes

import "testing"

// TestInForce decides with which mode a host begins, and to which it goes.
func TestInForce(t *testing.T) {
	there := func(mode string) bool { return mode != "gone" }
	for _, tc := range []struct {
		name          string
		was           inForce
		file          string
		serve, wanted string
	}{
		{"nothing is known", inForce{}, "iptables", "iptables", "iptables"},
		{"as before", inForce{Serving: "iptables"}, "iptables", "iptables", "iptables"},
		{"the file changed while no host ran", inForce{Serving: "iptables"}, "userspace", "iptables", "userspace"},
		{"someone asked for another", inForce{Serving: "userspace", Asked: "userspace", File: "iptables"}, "iptables", "userspace", "userspace"},
		{"and then the file changed", inForce{Serving: "userspace", Asked: "userspace", File: "iptables"}, "ipvs", "userspace", "ipvs"},
		{"what served is not there any more", inForce{Serving: "gone"}, "iptables", "iptables", "iptables"},
	} {
		serve, _ := tc.was.serving(tc.file, there)
		if wanted := tc.was.wanted(tc.file); serve != tc.serve || wanted != tc.wanted {
			t.Errorf("%s: begins with %s and goes to %s, want %s and %s", tc.name, serve, wanted, tc.serve, tc.wanted)
		}
	}
}
