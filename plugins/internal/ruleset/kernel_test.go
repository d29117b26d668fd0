// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

func nat(chain string) iptables.ID    { return iptables.ID{Table: "nat", Chain: chain} }
func filter(chain string) iptables.ID { return iptables.ID{Table: "filter", Chain: chain} }
func mangle(chain string) iptables.ID { return iptables.ID{Table: "mangle", Chain: chain} }

// The trees of the tests' set.
const (
	served = iota
	rejected
	ports
)

func newSet() *Set[int] { return New(testConfig()) }

func testConfig() Config[int] {
	return Config[int]{
		Family: sdk.IPv4,
		Mangle: true,
		Trees: []Tree{
			served:   {Tree: tree.ByAddress(nat("KUBE-SERVICES"), "KUBE-VIP-", sdk.IPv4, 1)},
			rejected: {Tree: tree.ByAddress(filter("KUBE-SERVICES"), "KUBE-VIP-", sdk.IPv4, 1)},
			ports:    {Tree: tree.ByPort(filter("KUBE-NODEPORTS"), "KUBE-HC-", 1), Shared: true},
		},
		Ours: func(id iptables.ID) bool {
			return strings.HasPrefix(id.Chain, "KUBE-") && !masquerade.Is(id)
		},
		Rank:       rank,
		Companions: map[iptables.ID]iptables.ID{nat("KUBE-PROXY-CANARY"): {Table: "mangle", Chain: "KUBE-PROXY-CANARY"}},
	}
}

func rank(c iptables.Chain) int {
	switch name := c.ID.Chain; {
	case strings.HasPrefix(name, "KUBE-SEP-"):
		return 1
	case strings.HasPrefix(name, "KUBE-SVC-"), strings.HasPrefix(name, "KUBE-FW-"):
		return 2
	case name == "KUBE-SERVICES", name == "KUBE-NODEPORTS":
		return 4 + tree.Deepest
	case c.Level > 0:
		return 3 + tree.Deepest - c.Level
	}
	return 0
}

// keyOf is where packets to an owner are sent.
func keyOf(owner int) tree.Key {
	n := uint32(owner*owner) / 7
	return tree.Key{Addr: netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}), Protocol: sdk.TCP, Port: uint16(owner)}
}

// nameOf is one whose entries are an owner's.
func nameOf(owner int) sdk.Name { return sdk.Name{Service: fmt.Sprint(owner)} }

// serve is what an owner wants that has endpoints; one that has none is rejected. Several
// share a port.
func serve(owner, endpoints int) Desired {
	port := Entry{ports, tree.Entry{Key: tree.Key{Protocol: sdk.TCP, Port: uint16(owner % 5)}, Rule: "-j ACCEPT"}}
	if endpoints == 0 {
		return Desired{Entries: []Entry{port, {rejected, tree.Entry{Key: keyOf(owner), Rule: "-j REJECT --reject-with icmp-port-unreachable", Owner: nameOf(owner)}}}}
	}
	own := iptables.Chain{ID: nat(fmt.Sprint("KUBE-SVC-", owner))}
	var d Desired
	for i := range endpoints {
		sep := nat(fmt.Sprint("KUBE-SEP-", owner, "-", i))
		d.Chains = append(d.Chains, iptables.Chain{ID: sep, Rules: []iptables.Rule{"-p tcp -j DNAT --to-destination 10.0.0.1:80"}})
		own.Rules = append(own.Rules, iptables.Words("-j", sep.Chain))
	}
	d.Chains = append(d.Chains, own)
	d.Entries = []Entry{port, {served, tree.Entry{Key: keyOf(owner), Rule: iptables.Words("-j", own.ID.Chain), Behind: 2, Owner: nameOf(owner)}}}
	if owner%3 == 0 { // and only some sources
		guard := iptables.Chain{ID: filter(fmt.Sprint("KUBE-FW-", owner)), Rules: []iptables.Rule{"-s 10.0.0.0/8 -j RETURN", "-j DROP"}}
		d.Chains = append(d.Chains, guard)
		d.Entries = append(d.Entries, Entry{rejected, tree.Entry{Key: keyOf(owner), Rule: iptables.Words("-j", guard.ID.Chain), Behind: 1, Owner: nameOf(owner)}})
	}
	return d
}

// A kernel is tables that follow blocks as iptables-restore has the kernel follow them, and
// refuse what that refuses.
type kernel struct {
	*testing.T
	iptables.Tables
}

func newKernel(t *testing.T) kernel {
	k := kernel{t, make(iptables.Tables)}
	for _, id := range []iptables.ID{nat("PREROUTING"), nat("OUTPUT"), filter("INPUT"), filter("FORWARD"), filter("OUTPUT")} {
		k.Tables[id] = nil
	}
	return k
}

// do is what one block does, and what has to hold after it.
func (k kernel) do(b iptables.Block) {
	k.Helper()
	for _, c := range b.Whole {
		k.Tables[c.ID] = c.Rules
	}
	for _, id := range b.Remove {
		if _, there := k.Tables[id]; !there && id.Table != "mangle" {
			k.Fatalf("removes %s, which is not there", id)
		}
		k.Tables[id] = nil
	}
	for _, j := range b.Delete {
		i := slices.Index(k.Tables[j.At], j.Rule)
		if i < 0 {
			k.Fatalf("deletes from %s: %s, which is not there", j.At, j.Rule)
		}
		k.Tables[j.At] = slices.Delete(slices.Clone(k.Tables[j.At]), i, i+1)
	}
	for _, j := range b.Insert {
		k.Tables[j.At] = slices.Insert(slices.Clone(k.Tables[j.At]), 0, j.Rule)
	}
	for _, id := range b.Remove {
		delete(k.Tables, id)
	}
	k.sound()
}

// sound fails where a rule leads to a chain that is not there.
func (k kernel) sound() {
	k.Helper()
	for id, rules := range k.Tables {
		for _, r := range rules {
			to := iptables.ID{Table: id.Table, Chain: r.Target()}
			if _, there := k.Tables[to]; strings.HasPrefix(to.Chain, "KUBE-") && !there {
				k.Fatalf("a rule of %s leads to %s, which is not there", id, to)
			}
		}
	}
}

// catches reports whether packets to an owner meet a rule of that owner's, in nat or filter.
func (k kernel) catches(s *Set[int], owner int) bool {
	for _, in := range []int{served, rejected} {
		t := s.Tree(in)
		words := string(t.Words(keyOf(owner))) + " "
		if k.finds(t.Root(), words) {
			return true
		}
	}
	return false
}

// finds reports whether a rule that begins with words can be reached from chain id.
func (k kernel) finds(id iptables.ID, words string) bool {
	for _, r := range k.Tables[id] {
		if strings.HasPrefix(string(r), words) {
			return true
		}
		if to := (iptables.ID{Table: id.Table, Chain: r.Target()}); strings.HasPrefix(to.Chain, "KUBE-VIP-") && k.finds(to, words) {
			return true
		}
	}
	return false
}
