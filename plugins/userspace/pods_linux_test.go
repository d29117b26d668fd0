// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

// Under the Local policy, a pod of another node gets the local endpoints if the node's own pod range is known, else all
// endpoints, as with kube-proxy.
func TestKernelPodsOfOtherNodes(t *testing.T) {
	const local, elsewhere, here, other = "10.180.0.2:8080", podHere + ":8080", "10.180.0.7", "10.180.9.7"
	cluster, own := netip.MustParsePrefix("10.180.0.0/16"), netip.MustParsePrefix("10.180.0.0/24")
	six := netip.MustParsePrefix("fd00:10:180::/64")
	onNode(t, func(n node) {
		web := svc("web", "load-balancer 198.51.100.1:80 local, cluster-ip 172.30.0.41:80", elsewhere)
		web.Local = []sdk.Endpoint{{Addr: netip.MustParseAddrPort(local), OnNode: true}}
		dns := udp(web)
		for _, protocol := range []sdk.Protocol{sdk.TCP, sdk.UDP} {
			end, err := netns.Answer(n.Context(), n.host("10.180.0.2"), protocol, netip.MustParseAddrPort(local))
			if err != nil {
				n.Fatal(err)
			}
			defer end.Close()
		}
		n.serve(web, dns)
		facts := n.facts()
		facts.Pods.CIDRs = []netip.Prefix{cluster, six}
		for _, test := range []struct {
			own              []netip.Prefix
			fromHere, fromIt string
		}{
			{nil, elsewhere, elsewhere},
			{[]netip.Prefix{own}, elsewhere, local},
			{[]netip.Prefix{six}, elsewhere, elsewhere}, // the other family's
			{[]netip.Prefix{own, six}, elsewhere, local},
		} {
			facts.PodCIDRs = test.own
			n.must(sdk.Update{Node: facts})
			for _, network := range []string{"tcp", "udp"} {
				n.findsFrom(here, network, "198.51.100.1:80", test.fromHere)
				n.findsFrom(other, network, "198.51.100.1:80", test.fromIt)
				n.findsFrom(outsider, network, "198.51.100.1:80", local)
				n.findsFrom(other, network, "172.30.0.41:80", elsewhere)
			}
		}
	})
}
