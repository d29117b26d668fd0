// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// However small the pieces of a big load are, no rule in the kernel ever leads to a
// chain that is not written yet, or that is gone: whom the first rules catch, the last
// ones serve.
func TestPiecesEachStandAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	node := sdk.Node{Addrs: []netip.Addr{v4(192<<24 | 2<<8 | 10)}, NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, MasqueradeBit: 14}
	b := tablesOf(sdk.IPv4, node, nil)
	kernel := make(map[iptables.ID][]iptables.ID) // where each chain leads
	kernel[nat(markMasq)] = nil                   // it is there before anything of ours
	all := make(map[sdk.Name]piece)
	for range 160 {
		svc := randomService(random)
		for i := range random.IntN(40) {
			svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(v4(10<<24|uint32(i)), 8080)})
		}
		all[svc.Name] = want(svc, node)
	}
	none := make(map[sdk.Name]piece, len(all))
	for name := range all {
		none[name] = piece{}
	}
	for _, pieces := range []map[sdk.Name]piece{all, none} {
		p := b.plan(b.put(pieces), nil)
		cut := p.pieces(size{10, 100})
		if len(cut) < 20 {
			t.Fatalf("all is in %d pieces", len(cut))
		}
		for i, part := range cut {
			for _, block := range part {
				carryOut(t, i, kernel, block)
			}
		}
		b.done(p)
		clear(b.touched)
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

// Many chains that go are emptied first, even where everything fits one piece; and no
// piece is empty.
func TestManyAreEmptiedFirst(t *testing.T) {
	b := iptables.Block{Table: "nat"}
	for i := range manyGo + 1 {
		b.Remove = append(b.Remove, nat(fmt.Sprint("KUBE-SEP-", i)))
	}
	cut := plan{b}.pieces(size{math.MaxInt, math.MaxInt})
	if len(cut) != 2 || len(cut[0][0].Whole) != len(b.Remove) || len(cut[0][0].Remove) > 0 || len(cut[1][0].Remove) != len(b.Remove) {
		t.Errorf("%d chains that go are in %d pieces", len(b.Remove), len(cut))
	}
	b.Remove = b.Remove[:manyGo]
	if few := (plan{b}).pieces(size{math.MaxInt, math.MaxInt}); len(few) != 1 {
		t.Errorf("%d chains that go are in %d pieces", len(b.Remove), len(few))
	}
}

// However many rules a load has, no piece of it has more lines than a piece may have,
// unless one chain alone has, and the chains stay in order.
func TestPiecesHoldSoManyLines(t *testing.T) {
	var chains []iptables.Chain
	for i := range 300 {
		chains = append(chains, iptables.Chain{ID: nat(fmt.Sprint("KUBE-SEP-", i)), Rules: make([]iptables.Rule, i%7*20)})
	}
	chains[100].Rules = make([]iptables.Rule, 5000)
	limit := size{chains: 20, lines: 1000}
	var all []iptables.Chain
	for _, part := range limit.cut(chains) {
		lines := 0
		for _, c := range part {
			lines += 1 + len(c.Rules)
		}
		if len(part) > limit.chains || len(part) > 1 && lines > limit.lines {
			t.Errorf("a piece has %d chains with %d lines", len(part), lines)
		}
		all = append(all, part...)
	}
	if !slices.EqualFunc(all, chains, func(a, b iptables.Chain) bool { return a.ID == b.ID }) {
		t.Errorf("of %d chains %d are written, or in another order", len(chains), len(all))
	}
}
