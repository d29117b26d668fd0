// SPDX-License-Identifier: Apache-2.0

package phrase

import (
	"slices"
	"testing"
)

// TestAlike groups what only differs in a name, as dataplanes name what they would remove.
func TestAlike(t *testing.T) {
	got := Alike([]string{
		"iptables-nft: delete from filter FORWARD: -j KUBE-FORWARD",
		"iptables-nft: delete from filter INPUT: -j KUBE-SERVICES",
		"iptables-nft: delete from filter INPUT: -j KUBE-NODEPORTS",
		"ipv4 nft: remove nat KUBE-MARK-MASQ",
		"iptables-nft: remove nat KUBE-SVC-A",
		"iptables-nft: remove nat KUBE-SVC-B",
		"iptables-nft: remove nat KUBE-SVC-C",
		"iptables-nft: remove nat KUBE-SVC-D",
		"nft: remove table ip kube-proxy",
		"virtual service 10.0.0.1:80/tcp",
		"virtual service 10.0.0.2:80/tcp",
		"/proc/sys/net/ipv4/conf/all/route_localnet back to 0",
		"/proc/sys/net/ipv4/vs/conntrack back to 0",
		"sets KUBE-CLUSTER-IP KUBE-LOOP-BACK",
		"sets KUBE-6-CLUSTER-IP KUBE-6-LOOP-BACK",
	})
	want := []string{
		"iptables-nft: delete from filter (3): FORWARD, INPUT",
		"ipv4 nft: remove nat KUBE-MARK-MASQ",
		"iptables-nft: remove nat (4): KUBE-SVC-A, KUBE-SVC-B, KUBE-SVC-C and 1 more",
		"nft: remove table ip kube-proxy",
		"virtual service (2): 10.0.0.1:80/tcp, 10.0.0.2:80/tcp",
		"/proc/sys/net/ipv4/conf/all/route_localnet back to 0",
		"/proc/sys/net/ipv4/vs/conntrack back to 0",
		"sets (4): KUBE-CLUSTER-IP, KUBE-LOOP-BACK, KUBE-6-CLUSTER-IP and 1 more",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
