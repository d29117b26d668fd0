// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// TestCountedBy reads the rules of every scenario, each of which has matched one packet: a Service has as
// many connections as it has rules that send to an endpoint, with comments and without, and also where
// its list of endpoints is divided.
func TestCountedBy(t *testing.T) {
	all := sdktest.Scenarios()
	large := sdk.Service{
		Name:      sdk.Name{Namespace: "ns1", Service: "large", Port: "http", Protocol: sdk.UDP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.MustParseAddrPort("172.30.0.200:80")}},
	}
	for i := range 100 {
		large.Cluster = append(large.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 180, 9, byte(i)}), 8080)})
	}
	remembers := large
	remembers.Name.Service, remembers.Affinity = "remembers", time.Hour
	all = append(all, sdktest.Scenario{Name: "large", Services: []sdk.Service{large, remembers}})
	for _, s := range all {
		for _, comments := range []bool{true, false} {
			for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
				w, wanted := readCounts{chains: make(map[string]*readChain)}, make(map[sdk.Name]uint64)
				for _, svc := range s.Services {
					if svc.Name.Family != family {
						continue
					}
					for _, c := range want(svc, s.Node, comments).Chains {
						for _, rule := range c.Rules {
							w.rule(c.ID.Chain, rule, 1)
							if rule.Target() == "DNAT" {
								wanted[svc.Name]++
							}
						}
					}
				}
				parts, got := make(map[sdk.Name]map[string]frame.Count), make(map[sdk.Name]uint64)
				w.add(parts, family)
				for name, some := range parts {
					for _, n := range some {
						got[name] += n.Connections
					}
				}
				if !maps.Equal(got, wanted) {
					t.Errorf("%s, with comments: %v: %v, want %v", s.Name, comments, got, wanted)
				}
			}
		}
	}
}
