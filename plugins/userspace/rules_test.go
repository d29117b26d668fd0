// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// lay writes the rules of IPv4 in role, in small pieces, and then nothing is left to be written.
func (s *scene) lay(role sdk.Role) *iptables.Script {
	s.Helper()
	s.rules[sdk.IPv4].Tool.Most = iptables.Limit{Chains: 3, Lines: 20} // each takes effect by itself
	written := s.write(sdk.IPv4, role)
	if again := s.write(sdk.IPv4, role); again != nil {
		s.Fatalf("written, and still to be written:\n%s", again)
	}
	return written
}

// is compares the tables of IPv4 with what they should be; foreign rules stand beside.
func (s *scene) is(should iptables.Tables) {
	s.Helper()
	have := s.fakes[sdk.IPv4].Tables
	for id, rules := range should {
		now := slices.DeleteFunc(slices.Clone(have[id]), func(r iptables.Rule) bool { return r == foreign })
		if !slices.Equal(now, rules) {
			s.Fatalf("%s is\n%q\nand should be\n%q", id, now, rules)
		}
	}
	for id := range have {
		if _, ok := should[id]; isOurs(id) && !ok {
			s.Fatalf("%s should not be there", id)
		}
	}
}

// foreign is a rule of others.
const foreign iptables.Rule = "-s 203.0.113.1/32 -j DROP"

// TestWalk leads the tables from state to state in an order of its own: each
// change lands where it should, whatever was there, and what is not ours stays.
func TestWalk(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	node := sdk.Node{Addrs: addrs("192.0.2.10"), NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, MasqueradeBit: 14}
	var services []sdk.Service
	for _, s := range sdktest.Scenarios() {
		for _, svc := range s.Services {
			if svc.Name.Family == sdk.IPv4 && svc.Name.Protocol != sdk.SCTP {
				services = append(services, svc)
			}
		}
	}
	s := newScene(t, node, nil)
	b, fake := s.rules[sdk.IPv4], s.fakes[sdk.IPv4]
	fake.Tables[filter("FORWARD")], fake.Tables[nat("KUBE-SERVICES")] = []iptables.Rule{foreign}, []iptables.Rule{foreign}
	owners := make(map[place]sdk.Name)
	for range 300 {
		role := []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining}[random.IntN(3)]
		now := newScene(t, node, nil)
		for name := range maps.Clone(b.Desired()) { // all go, and some come back
			if random.IntN(2) == 0 {
				b.SetDesired(map[sdk.Name]rules.Piece{name: {}})
			}
		}
		for range random.IntN(4) {
			svc := &services[random.IntN(len(services))]
			for _, f := range svc.Frontends { // each place has one owner
				at := place{svc.Name.Protocol, f.Addr}
				if was, taken := owners[at]; taken && was != svc.Name {
					b.SetDesired(map[sdk.Name]rules.Piece{was: {}})
				}
				owners[at] = svc.Name
			}
			s.put(svc)
		}
		if random.IntN(4) == 0 {
			disturb(fake.Tables, random)
			s.list(sdk.IPv4)
		}
		s.lay(role)
		now.rules[sdk.IPv4].SetDesired(b.Desired())
		s.is(now.tables(sdk.IPv4, role))
	}
	if !slices.Contains(fake.Tables[filter("FORWARD")], foreign) || !slices.Contains(fake.Tables[nat("KUBE-SERVICES")], foreign) {
		t.Error("what is not ours is gone")
	}
}

// disturb takes one chain of ours away, or empties it, or says something twice; or
// leaves there what kube-proxy has made, with its jump.
func disturb(tables iptables.Tables, random *rand.Rand) {
	for id, rules := range tables {
		if !isOurs(id) {
			continue
		}
		switch random.IntN(4) {
		case 0:
			remove(tables, id)
		case 1:
			tables[id] = nil
		case 2:
			tables[id] = append(rules, rules...)
		case 3:
			jump := iptables.Rule(`-m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-HOST`)
			tables[nat("KUBE-PORTALS-OLD")] = []iptables.Rule{"-j RETURN"}
			if !slices.Contains(tables[nat("OUTPUT")], jump) {
				tables[nat("KUBE-PORTALS-HOST")] = slices.Clone(tables[nat("KUBE-PORTALS-HOST")]) // it is there, empty or not
				tables[nat("OUTPUT")] = append(tables[nat("OUTPUT")], jump)
			}
		}
		return
	}
}

// remove takes a chain away, and first what leads to it, as the kernel wants it. One to
// which a hook leads stays.
func remove(tables iptables.Tables, id iptables.ID) {
	leads := func(r iptables.Rule) bool { return r.Target() == id.Chain }
	for at, rules := range tables {
		if at.Table == id.Table && !isOurs(at) && slices.ContainsFunc(rules, leads) {
			return
		}
	}
	for at, rules := range tables {
		if at.Table == id.Table {
			tables[at] = slices.DeleteFunc(slices.Clone(rules), leads)
		}
	}
	delete(tables, id)
}

// TestChangeIsSmall: one Service of many that changes costs a few chains.
func TestChangeIsSmall(t *testing.T) {
	node := sdk.Node{Addrs: addrs("192.0.2.10"), MasqueradeBit: 14}
	var services []sdk.Service
	for i := range 1000 {
		addr := netip.AddrFrom4([4]byte{172, 30, byte(i / 250), byte(1 + i%250)})
		services = append(services, svc("s"+addr.String(), "cluster-ip "+addr.String()+":80", "10.180.1.1:8080"))
	}
	s := newScene(t, node, services)
	s.lay(sdk.Active)
	services[7].Cluster = nil
	s.put(&services[7])
	const want = `*filter
:KUBE-PORTALS-VIP - [0:0]
-A KUBE-PORTALS-VIP -d 172.30.0.8/32 -p tcp -m tcp --dport 80 -m comment --comment "ns1/s172.30.0.8" -j REJECT --reject-with icmp-port-unreachable
COMMIT
*nat
:KUBE-PV-172.30.0.8/30 - [0:0]
`
	got := s.lay(sdk.Active).String()
	if !strings.HasPrefix(got, want) || strings.Count(got, "\n") != strings.Count(want, "\n")+4+1 {
		t.Errorf("%s", got)
	}
}
