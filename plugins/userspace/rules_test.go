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
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// A pretended kernel has one family's tables, and takes blocks as iptables-restore
// would.
type pretended struct {
	*testing.T
	iptables.Tables
}

func (k pretended) take(b iptables.Block) {
	k.Helper()
	for _, c := range b.Whole {
		k.Tables[c.ID] = slices.Clone(c.Rules)
	}
	for _, id := range b.Remove {
		k.Tables[id] = nil
	}
	for _, j := range b.Delete {
		k.drop(j.At, j.Rule)
	}
	for _, j := range b.Insert {
		k.Tables[j.At] = slices.Insert(k.Tables[j.At], 0, j.Rule)
	}
	for _, id := range b.Remove {
		for at, rules := range k.Tables {
			if at.Table == id.Table && slices.ContainsFunc(rules, func(r iptables.Rule) bool { return r.Target() == id.Chain }) {
				k.Fatalf("%s is removed, and %s leads to it", id, at)
			}
		}
		delete(k.Tables, id)
	}
	for at, rules := range k.Tables {
		for _, r := range rules {
			if to := (iptables.ID{Table: at.Table, Chain: r.Target()}); isOurs(to) && at.Table == b.Table && k.Tables[to] == nil {
				if _, there := k.Tables[to]; !there {
					k.Fatalf("%s leads to %s, which is not there", at, to)
				}
			}
		}
	}
}

func (k pretended) drop(id iptables.ID, rule iptables.Rule) {
	k.Helper()
	i := slices.Index(k.Tables[id], rule)
	if i < 0 {
		k.Fatalf("delete from %s what is not there: %s", id, rule)
	}
	k.Tables[id] = slices.Delete(k.Tables[id], i, i+1)
}

// lay carries out what s plans, in role.
func (k pretended) lay(s *familyRules, role sdk.Role) ruleset.Plan {
	k.Helper()
	s.follow(role)
	plan := s.Plan()
	for _, chunk := range plan.Cut(iptables.Limit{Chains: 3, Lines: 20}, rank) { // each takes effect by itself
		for _, block := range chunk {
			k.take(block)
		}
	}
	s.Done(plan)
	s.Settled()
	if again := s.Plan(); len(again) > 0 {
		k.Fatalf("written, and still to be written: %q", again.Steps())
	}
	return plan
}

// is compares the tables with what they should be; foreign ones stand beside.
func (k pretended) is(should iptables.Tables) {
	k.Helper()
	for id, rules := range should {
		have := slices.Clone(k.Tables[id])
		if !isOurs(id) {
			have = slices.DeleteFunc(have, func(r iptables.Rule) bool { return strings.Contains(string(r), "203.0.113.") })
		}
		if !slices.Equal(have, rules) {
			k.Fatalf("%s is\n%q\nand should be\n%q", id, have, rules)
		}
	}
	for id := range k.Tables {
		if _, ok := should[id]; isOurs(id) && !ok {
			k.Fatalf("%s should not be there", id)
		}
	}
}

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
	foreign := iptables.Rule("-s 203.0.113.1/32 -j DROP")
	kernel := pretended{t, iptables.Tables{filter("FORWARD"): {foreign}, nat("KUBE-SERVICES"): {foreign}}}
	b := newScene(node, nil).rules[sdk.IPv4]
	for range 300 {
		role := []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining}[random.IntN(3)]
		now := &scene{node: node, rules: map[sdk.Family]*familyRules{sdk.IPv4: b}, udp: make(map[uint16]sdk.Service)}
		for k := range maps.Clone(b.Owners()) { // all go, and some come back
			if random.IntN(2) == 0 {
				b.Put(k, ruleset.Desired{})
			}
		}
		for range random.IntN(4) {
			now.put(&services[random.IntN(len(services))])
		}
		if random.IntN(4) == 0 {
			kernel.disturb(random)
			b.Adopt(kernel.Tables)
		}
		kernel.lay(b, role)
		kernel.is(now.tables(sdk.IPv4, role))
	}
	if !slices.Contains(kernel.Tables[filter("FORWARD")], foreign) || !slices.Contains(kernel.Tables[nat("KUBE-SERVICES")], foreign) {
		t.Error("what is not ours is gone")
	}
}

// disturb takes one chain of ours away, or empties it, or says something twice; or
// leaves there what kube-proxy has made, with its jump.
func (k pretended) disturb(random *rand.Rand) {
	for id, rules := range k.Tables {
		if !isOurs(id) {
			continue
		}
		switch random.IntN(4) {
		case 0:
			k.remove(id)
		case 1:
			k.Tables[id] = nil
		case 2:
			k.Tables[id] = append(rules, rules...)
		case 3:
			jump := iptables.Rule(`-m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-HOST`)
			k.Tables[nat("KUBE-PORTALS-OLD")] = []iptables.Rule{"-j RETURN"}
			if !slices.Contains(k.Tables[nat("OUTPUT")], jump) {
				k.Tables[nat("KUBE-PORTALS-HOST")] = slices.Clone(k.Tables[nat("KUBE-PORTALS-HOST")]) // it is there, empty or not
				k.Tables[nat("OUTPUT")] = append(k.Tables[nat("OUTPUT")], jump)
			}
		}
		return
	}
}

// remove takes a chain away, and first what leads to it, as the kernel wants it. One to
// which a hook leads stays: the order of the jumps there is not told apart.
func (k pretended) remove(id iptables.ID) {
	leads := func(r iptables.Rule) bool { return r.Target() == id.Chain }
	for at, rules := range k.Tables {
		if at.Table == id.Table && !isOurs(at) && slices.ContainsFunc(rules, leads) {
			return
		}
	}
	for at, rules := range k.Tables {
		if at.Table == id.Table {
			k.Tables[at] = slices.DeleteFunc(slices.Clone(rules), leads)
		}
	}
	delete(k.Tables, id)
}

// TestChangeIsSmall: one Service of many that changes costs a few chains.
func TestChangeIsSmall(t *testing.T) {
	node := sdk.Node{Addrs: addrs("192.0.2.10"), MasqueradeBit: 14}
	var services []sdk.Service
	for i := range 1000 {
		addr := netip.AddrFrom4([4]byte{172, 30, byte(i / 250), byte(1 + i%250)})
		services = append(services, svc("s"+addr.String(), "cluster-ip "+addr.String()+":80", "10.180.1.1:8080"))
	}
	s := newScene(node, services)
	b, kernel := s.rules[sdk.IPv4], pretended{t, make(iptables.Tables)}
	kernel.lay(b, sdk.Active)
	services[7].Cluster = nil
	s.put(&services[7])
	steps := kernel.lay(b, sdk.Active).Steps()
	if len(steps) != 2 || steps[0] != "write filter KUBE-PORTALS-VIP (1 rules)" || steps[1] != "write nat KUBE-PV-172.30.0.8/30 (4 rules)" {
		t.Errorf("%q", steps)
	}
}
