// SPDX-License-Identifier: Apache-2.0

package conntrack_test

import (
	"fmt"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// One of two flows to a frontend is stale, because its endpoint is gone.
func ExampleServing() {
	dns := sdk.Service{
		Name:      sdk.Name{Namespace: "kube-system", Service: "dns", Protocol: sdk.UDP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort("172.30.0.10:53"), Policy: sdk.Cluster}},
		Cluster:   []sdk.Endpoint{{Addr: netip.MustParseAddrPort("10.180.0.1:53")}},
	}
	noNodePorts := func(netip.Addr) bool { return false }
	served := conntrack.Serving(sdk.IPv4, []sdk.Service{dns}, noNodePorts)

	for _, endpoint := range []string{"10.180.0.1:53", "10.180.0.2:53"} {
		flow := conntrack.Flow{To: netip.MustParseAddrPort("172.30.0.10:53"), Reply: netip.MustParseAddrPort(endpoint)}
		fmt.Println(endpoint, "stale:", served.Stale(flow))
	}
	// Output:
	// 10.180.0.1:53 stale: false
	// 10.180.0.2:53 stale: true
}
