// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
)

// After each block of a large load, however small the blocks are, no rule in the kernel jumps to a chain that does not
// exist yet or any more. The fake refuses a block that breaks this.
func TestNoRuleJumpsToAMissingChain(t *testing.T) {
	node := sdk.Node{Addrs: []netip.Addr{v4(192<<24 | 2<<8 | 10)}, NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, MasqueradeBit: 14}
	b := onFake(t, sdk.IPv4, node)
	b.Tool.Most = iptables.Limit{Chains: 10, Lines: 100}
	all, none := make(map[sdk.Name]rules.Piece), make(map[sdk.Name]rules.Piece)
	for i := range 160 {
		svc := service(i, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(base+uint32(i*i)/7), uint16(80+i))},
			sdk.Frontend{Kind: sdk.NodePort, Policy: sdk.Local, Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(30000+i))})
		if svc.Cluster = endpoints(i % 40); i%3 == 0 {
			svc.Affinity, svc.Local, svc.HealthPort = 1e9, svc.Cluster, uint16(40000+i)
		}
		if i%11 == 0 {
			svc.Frontends[0].Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		}
		all[svc.Name], none[svc.Name] = want(svc, node, false), rules.Piece{}
	}
	for _, pieces := range []map[sdk.Name]rules.Piece{all, none} {
		b.fake.Blocks = 0
		b.write(t, pieces)
		if b.fake.Blocks < 20 {
			t.Fatalf("only %d blocks were written", b.fake.Blocks)
		}
	}
}
