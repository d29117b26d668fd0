// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftable"
	"github.com/pointsman/pointsman/sdk"
)

// TestDivide gives each Service the connections of its endpoints, and none to those that share one.
func TestDivide(t *testing.T) {
	at := netip.MustParseAddrPort
	name := func(service string, p sdk.Protocol) sdk.Name {
		return sdk.Name{Namespace: "shop", Service: service, Protocol: p, Family: sdk.IPv4}
	}
	of := func(policy sdk.Policy, addrs ...netip.AddrPort) wanted {
		var w wanted
		w.lists[policy] = addrs
		return w
	}
	both := of(sdk.Cluster, at("10.0.0.1:80"), at("10.0.0.2:80"))
	both.lists[sdk.Local] = []netip.AddrPort{at("10.0.0.1:80")}
	services := map[sdk.Name]wanted{
		name("web", sdk.TCP):   both,
		name("dns", sdk.UDP):   of(sdk.Cluster, at("10.0.0.1:80")),
		name("idle", sdk.TCP):  of(sdk.Cluster, at("10.0.0.3:80")),
		name("one", sdk.TCP):   of(sdk.Cluster, at("10.0.0.4:80"), at("10.0.0.5:80")),
		name("other", sdk.TCP): of(sdk.Local, at("10.0.0.5:80")),
	}
	counts := map[string]uint64{
		nftable.Key(sdk.TCP, at("10.0.0.1:80")): 3, nftable.Key(sdk.TCP, at("10.0.0.2:80")): 4, nftable.Key(sdk.UDP, at("10.0.0.1:80")): 5,
		nftable.Key(sdk.TCP, at("10.0.0.5:80")): 6, nftable.Key(sdk.TCP, at("10.0.0.9:80")): 7, "no key": 8,
	}
	parts := make(map[sdk.Name]map[string]frame.Count)
	frame.Divide(parts, endpoints(services), ipOf(sdk.IPv4).counted(counts))
	want := map[sdk.Name]map[string]frame.Count{
		name("web", sdk.TCP): {"10.0.0.1:80": {Connections: 3}, "10.0.0.2:80": {Connections: 4}},
		name("dns", sdk.UDP): {"10.0.0.1:80": {Connections: 5}}, name("idle", sdk.TCP): {},
	}
	if fmt.Sprint(parts) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", parts, want)
	}
}
