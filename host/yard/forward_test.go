// SPDX-License-Identifier: Apache-2.0

package yard

import "testing"

func TestForwardsByLeave(t *testing.T) {
	const ours = "-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n"
	for _, tc := range []struct {
		name, rules string
		want        bool
	}{
		{"an open node", "-P FORWARD ACCEPT\n" + ours, false},
		{"a closed node", "-P FORWARD DROP\n" + ours, true},
		{"a closed node that lets replies through", "-P FORWARD DROP\n" + ours + "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n", false},
		{"a closed node that never had leave", "-P FORWARD DROP\n-A FORWARD -i cni0 -j ACCEPT\n", false},
		{"a closed node with an open chain", "-P FORWARD DROP\n" + ours + "-A FORWARD -j ACCEPT\n", false},
	} {
		if got := forwardsByLeave(tc.rules); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

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
