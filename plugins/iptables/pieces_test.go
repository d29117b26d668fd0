// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// However small the pieces of a big load are, no rule in the kernel ever leads to a
// chain that is not written yet, or that is gone: what the first rules catch, the last
// ones serve.
func TestPiecesEachStandAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	node := sdk.Node{Addrs: []netip.Addr{v4(192<<24 | 2<<8 | 10)}, NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, MasqueradeBit: 14}
	b := tablesOf(sdk.IPv4, node, nil)
	kernel := make(map[iptables.ID][]iptables.ID) // where each chain leads
	kernel[nat(markMasq)] = nil                   // it is there before anything of ours
	all := make(map[sdk.Name]ruleset.Desired)
	for range 160 {
		svc := randomService(random)
		for i := range random.IntN(40) {
			svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(v4(10<<24|uint32(i)), 8080)})
		}
		all[svc.Name] = want(svc, node, false)
	}
	none := make(map[sdk.Name]ruleset.Desired, len(all))
	for name := range all {
		none[name] = ruleset.Desired{}
	}
	for _, pieces := range []map[sdk.Name]ruleset.Desired{all, none} {
		p := b.next(pieces)
		cut := p.Cut(iptables.Limit{Chains: 10, Lines: 100}, rank)
		if len(cut) < 20 {
			t.Fatalf("all is in %d pieces", len(cut))
		}
		for i, part := range cut {
			for _, block := range part {
				carryOut(t, i, kernel, block)
			}
		}
		b.Done(p)
		b.Settled()
	}
}

// carryOut does what restore does with a block, and as it does refuses what leads
// nowhere.
func carryOut(t *testing.T, i int, kernel map[iptables.ID][]iptables.ID, block iptables.Block) {
	t.Helper()
	for _, c := range block.Whole {
		kernel[c.ID] = nil
		for _, r := range c.Rules {
			if to := r.Target(); strings.HasPrefix(to, "KUBE-") {
				kernel[c.ID] = append(kernel[c.ID], iptables.ID{Table: c.ID.Table, Chain: to})
			}
		}
	}
	for _, id := range block.Remove {
		delete(kernel, id)
	}
	for id, leads := range kernel {
		for _, to := range leads {
			if _, there := kernel[to]; !there {
				t.Fatalf("after piece %d a rule of %s leads to %s, which is not there", i, id, to.Chain)
			}
		}
	}
}
