// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
)

// After any sequence of changes, a rule set equals a newly written one.
func TestRandomChangesEndLikeAFreshStart(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	node := sdk.Node{Addrs: []netip.Addr{v4(192<<24 | 2<<8 | 10)}, NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, MasqueradeBit: 14}
	b := onFake(t, sdk.IPv4, node)
	have := make(map[sdk.Name]sdk.Service)
	for step := range 400 {
		pieces := make(map[sdk.Name]rules.Piece)
		for range 1 + random.IntN(40) {
			svc := randomService(random)
			pieces[svc.Name] = want(svc, node, true)
			have[svc.Name] = svc
			if random.IntN(5) < 2+step%2 { // the number of Services grows and shrinks
				pieces[svc.Name] = rules.Piece{}
				delete(have, svc.Name)
			}
		}
		b.write(t, pieces)
		if step%20 == 0 {
			wantSame(t, step, b, tablesOf(t, sdk.IPv4, node, slices.Collect(maps.Values(have))))
		}
	}
}

// randomService returns one of a few hundred Services whose addresses are close enough for the trees to branch at each
// level. It often has no endpoints. Each frontend has one owner.
func randomService(random *rand.Rand) sdk.Service {
	i := random.IntN(600)
	svc := service(i, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(base+uint32(i*i)/7), uint16(80+i))})
	if i%3 == 0 {
		svc.Frontends = append(svc.Frontends, sdk.Frontend{Kind: sdk.NodePort, Policy: sdk.Local, Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(30000+i))})
	}
	if i%11 == 0 {
		svc.HealthPort = uint16(40000 + i%77)
		svc.Frontends[0].Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}
	switch random.IntN(3) {
	case 0:
		svc.Cluster = nil
	case 1:
		svc.Affinity = 1e9
		svc.Local = svc.Cluster
	}
	return svc
}

func wantSame(t *testing.T, step int, got, fresh fakeRules) {
	t.Helper()
	has, should := got.ours(), fresh.ours()
	for id, rules := range should {
		if !slices.Equal(has[id], rules) {
			t.Fatalf("step %d: chain %s has\n%q, and in a new rule set\n%q", step, id, has[id], rules)
		}
	}
	for id := range has {
		if _, ok := should[id]; !ok {
			t.Fatalf("step %d: chain %s is left over", step, id)
		}
	}
}

// Between two states, filter never rejects a client that nat will serve, and always stops a client that nat no longer
// serves.
func TestFilterChangesAroundNAT(t *testing.T) {
	node := sdk.Node{MasqueradeBit: 14}
	up := service(1, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(base+1), 80)})
	down := up
	down.Cluster = nil
	other := service(2, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(base+2), 80)})
	gone := other
	gone.Cluster = nil
	b := tablesOf(t, sdk.IPv4, node, []sdk.Service{down, other})
	p := blocksOf(t, b.write(t, map[sdk.Name]rules.Piece{up.Name: want(up, node, true), gone.Name: want(gone, node, true)}))
	root := filter(services)
	if _, served := p[1][nat(services)]; len(p) != 3 || !served {
		t.Fatalf("the script is\n%s", b.fake.Last)
	}
	if n := len(p[0][root]); n != 3 { // the rule for translated packets, and the entries of both Services
		t.Errorf("the first block writes in filter\n%s", p[0][root])
	}
	if n := len(p[2][root]); n != 2 {
		t.Errorf("the last block writes in filter\n%s", p[2][root])
	}
}
