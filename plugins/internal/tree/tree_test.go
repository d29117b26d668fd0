// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/sdk"
)

var root = iptables.ID{Table: "nat", Chain: "ROOT"}

// A forest has the chains of trees.
type forest iptables.Tables

// follow applies the changes of a tree, and returns the number of changed chains.
func (f forest) follow(t *Tree) int {
	changed, removed := t.Changes()
	for _, c := range changed {
		f[c.ID] = c.Rules
	}
	for _, id := range removed {
		delete(f, id)
	}
	return len(changed) + len(removed)
}

func v4(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

func at(addr netip.Addr, port uint16) Entry {
	k := Key{addr, sdk.TCP, port}
	return Entry{Key: k, Rule: iptables.Rule(fmt.Sprintf("-j TO-%s-%d", strings.ReplaceAll(addr.String(), ":", ""), port))}
}

// The shape of a tree is the one that a new process would compose, whatever changes led to it.
func TestShapeDependsOnEntriesAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, grow := range map[string]func() *Tree{
		"by address": func() *Tree { return ByAddress(root, "T-", sdk.IPv4, 1) },
		"by port":    func() *Tree { return ByPort(root, "T-", 1) },
		"deep":       func() *Tree { return ByAddress(root, "T-", sdk.IPv4, Deepest-3) },
	} {
		t.Run(name, func(t *testing.T) {
			walked, have, chains := grow(), make(map[Key]Entry), make(forest)
			for step := range 1500 {
				e := at(v4(10<<24|random.Uint32N(1<<9)), uint16(80+random.UintN(3)))
				if name == "by port" {
					e = at(netip.IPv4Unspecified(), uint16(30000+random.UintN(2000)))
				}
				if random.UintN(1000) < uint(step%1000) {
					walked.Drop(e.Key)
					delete(have, e.Key)
				} else {
					walked.Put(e)
					have[e.Key] = e
				}
				chains.follow(walked)
				if step%100 != 0 {
					continue
				}
				fresh, want := grow(), make(forest)
				for _, e := range have {
					fresh.Put(e)
				}
				want.follow(fresh)
				if !maps.EqualFunc(chains, want, slices.Equal[[]iptables.Rule]) {
					t.Fatalf("step %d: %d entries are in %d chains, and in a new tree in %d", step, len(have), len(chains), len(want))
				}
			}
		})
	}
}

// A packet is compared with few rules, and a change of an entry changes few chains, however many entries
// there are.
func TestFewComparisonsAndChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, addr := range map[string]func(i int) netip.Addr{
		"dense":  func(i int) netip.Addr { return v4(10<<24 + uint32(i)) },
		"sparse": func(i int) netip.Addr { return v4(10<<24 + uint32(i)*37) },
		"random": func(int) netip.Addr { return v4(10<<24 | random.Uint32N(1<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			tr, chains := ByAddress(root, "T-", sdk.IPv4, 1), make(forest)
			var entries []Entry
			for i := range 10000 {
				entries = append(entries, at(addr(i), 80))
				tr.Put(entries[i])
				chains[iptables.ID{Table: "nat", Chain: entries[i].Rule.Target()}] = []iptables.Rule{"-j ACCEPT"}
			}
			chains.follow(tr)
			tables := iptables.Tables(chains)
			tables[iptables.ID{Table: "nat", Chain: "PREROUTING"}] = []iptables.Rule{"-j ROOT"}
			tracer := oracle.IPTables(tables)
			most, touched := 0, 0
			for i := 0; i < len(entries); i += 29 {
				e := entries[i]
				paths, err := tracer.At(oracle.Packet{Protocol: "tcp", To: netip.AddrPortFrom(e.Key.Addr, 80), In: "eth0"}, oracle.Hook{Table: "nat", Chain: "PREROUTING"})
				if err != nil || paths[0].Steps[len(paths[0].Steps)-1].Chain != e.Rule.Target() {
					t.Fatalf("%s leads to %v, %v", e.Key.Addr, paths, err)
				}
				most = max(most, len(paths[0].Steps))
				tr.Drop(e.Key)
				touched = max(touched, chains.follow(tr))
				tr.Put(e)
				touched = max(touched, chains.follow(tr))
			}
			if t.Logf("%d rules, %d chains", most, touched); most > 36 || touched > 8 {
				t.Errorf("a packet is compared with %d rules, and an entry changes %d chains", most, touched)
			}
		})
	}
}

// Read parses the rules that list entries, and no others.
func TestRead(t *testing.T) {
	for name, tr := range map[string]*Tree{
		"ipv4": ByAddress(root, "T-", sdk.IPv4, 1), "ipv6": ByAddress(root, "T-", sdk.IPv6, 1), "ports": ByPort(root, "T-", 1),
	} {
		want, got, random := make(map[Key]iptables.Rule), make(map[Key]iptables.Rule), rand.New(rand.NewPCG(3, 4))
		for range 300 {
			e := at(v4(10<<24|random.Uint32N(1<<9)), uint16(1+random.UintN(1<<16-1)))
			switch name {
			case "ipv6":
				e.Key.Addr = netip.MustParsePrefix("fd00::/64").Addr().Next()
			case "ports":
				e.Key.Addr = netip.Addr{}
			}
			tr.Put(e)
			want[e.Key] = e.Rule
		}
		changed, _ := tr.Changes()
		for _, c := range changed {
			for _, r := range c.Rules {
				if k, rest, ok := tr.Read(r); ok {
					got[k] = rest
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: of %d entries %d are read, or with other rules", name, len(want), len(got))
		}
		const proxys iptables.Rule = `-p tcp -m comment --comment "ns/a cluster IP" -m tcp --dport 80 -j KUBE-SVC-A`
		line := map[string]iptables.Rule{"ipv4": "-d 10.0.0.1/32 " + proxys, "ipv6": "-d fd00::1/128 " + proxys, "ports": proxys}[name]
		if k, rest, ok := tr.Read(line); !ok || k.Port != 80 || rest != `-m comment --comment "ns/a cluster IP" -j KUBE-SVC-A` {
			t.Errorf("%s: kube-proxy's rule is read as the entry of %v: %q, %v", name, k, rest, ok)
		}
		for _, r := range []iptables.Rule{
			"", "-j RETURN", "-d 10.0.0.0/24 -j X", "-d 10.0.0.1/32 -j T-X", "! -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j X", "-p tcp -j X",
			"-d 10.0.0.1/32 -p tcp -m tcp --dport 80:81 -j X", "-s 10.0.0.2/32 -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j X", "-p tcp -m tcp --dport 80",
			"-d 10.0.0.1/32 -p 99 -j X", "-d nonsense -j X", `-m comment --comment "open`,
		} {
			if k, _, ok := tr.Read(r); ok {
				t.Errorf("%s: %q is read as the entry of %v", name, r, k)
			}
		}
	}
}

// Put does not copy other entries or compose names again.
func TestPutAllocatesNothing(t *testing.T) {
	all := ByAddress(root, "T-", sdk.IPv4, 1)
	for i := range uint32(1000) {
		all.Put(at(v4(10<<24|i), 80))
	}
	e := at(v4(10<<24|500), 80)
	if n := testing.AllocsPerRun(100, func() { all.Put(e) }); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}
