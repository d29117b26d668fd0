// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
)

// After each block of a large load, however small the blocks are, no rule in the kernel jumps to a chain that does not
// exist yet or any more. The fake refuses a block that breaks this.
func TestNoRuleJumpsToAMissingChain(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	node := sdk.Node{Addrs: []netip.Addr{v4(192<<24 | 2<<8 | 10)}, NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, MasqueradeBit: 14}
	b := onFake(t, sdk.IPv4, node)
	b.Tool.Most = iptables.Limit{Chains: 10, Lines: 100}
	all := make(map[sdk.Name]rules.Piece)
	for range 160 {
		svc := randomService(random)
		for i := range random.IntN(40) {
			svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(v4(10<<24|uint32(i)), 8080)})
		}
		all[svc.Name] = want(svc, node, false)
	}
	none := make(map[sdk.Name]rules.Piece, len(all))
	for name := range all {
		none[name] = rules.Piece{}
	}
	for _, pieces := range []map[sdk.Name]rules.Piece{all, none} {
		b.fake.Blocks = 0
		b.write(t, pieces)
		if b.fake.Blocks < 20 {
			t.Fatalf("only %d blocks were written", b.fake.Blocks)
		}
	}
}
