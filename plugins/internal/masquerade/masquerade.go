// SPDX-License-Identifier: Apache-2.0

// Package masquerade keeps the one part of the rules that all dataplanes share: packets that
// the chain KUBE-MARK-MASQ marks leave the node with an address of the node.
//
//	any chain of nat ─▶ KUBE-MARK-MASQ           sets the mark
//	nat POSTROUTING ──▶ KUBE-POSTROUTING         masquerades what has it
//
// Other software leads packets to KUBE-MARK-MASQ too (the portmap plugin of CNI, old kubelets,
// an administrator), and fails where the chain is not there. So the chains and the jump are
// one object in each family and backend, with kube-proxy's names and text, whichever
// dataplane serves. They say nothing about a dataplane's role.
//
// A dataplane that writes rules holds the object, from its first write until its Cleanup. Its
// holders stand in the ledger, and its lock is held while it is written, so that one
// dataplane joins before another leaves. The last one to leave removes it, unless it was
// there before us, a kubelet made it, or foreign rules lead to it.
package masquerade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Mark is the chain that marks packets: what "-j" leads to.
const Mark = "KUBE-MARK-MASQ"

// Forward is the chain that lets packets to Services through iptables' FORWARD, for a dataplane whose own chains are
// not iptables': what a chain drops no chain of another table can accept.
const Forward = "KUBE-NFT-FORWARD"

const table = "nat"

// An object is a group of chains, the last of them the target of a jump, that dataplanes hold together.
type object struct {
	name   string // in the ledger
	jump   iptables.Jump
	chains func(bit uint8) []iptables.Chain
}

var (
	marking    = &object{Mark, jump, Chains}
	forwarding = &object{Forward, iptables.Jump{At: iptables.ID{Table: "filter", Chain: "FORWARD"}, Rule: "-j " + Forward}, accepting}
)

// accepting is the chain that accepts what has the mark, and what belongs to a connection.
func accepting(bit uint8) []iptables.Chain {
	return []iptables.Chain{{ID: iptables.ID{Table: "filter", Chain: Forward}, Rules: []iptables.Rule{
		iptables.Words("-m mark --mark", iptables.OneBit(bit), "-j ACCEPT"),
		"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
	}}}
}

// ids are those of the object's chains.
func (o *object) ids() (all []iptables.ID) {
	for _, c := range o.chains(0) {
		all = append(all, c.ID)
	}
	return all
}

func (o *object) has(id iptables.ID) bool { return slices.Contains(o.ids(), id) }

var (
	mark        = iptables.ID{Table: table, Chain: Mark}
	postrouting = iptables.ID{Table: table, Chain: "KUBE-POSTROUTING"}
	jump        = iptables.Jump{
		At:   iptables.ID{Table: table, Chain: "POSTROUTING"},
		Rule: `-m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`,
	}
)

// Is reports whether chain id is one of the object's.
func Is(id iptables.ID) bool { return id == mark || id == postrouting }

// Chains are the object's chains, for a mark of one bit: its number.
func Chains(bit uint8) []iptables.Chain {
	masked := iptables.OneBit(bit)
	value, _, _ := strings.Cut(masked, "/")
	return []iptables.Chain{
		{ID: mark, Rules: []iptables.Rule{iptables.Words("-j MARK --set-xmark", masked)}},
		{ID: postrouting, Rules: []iptables.Rule{
			iptables.Words("-m mark ! --mark", masked, "-j RETURN"),
			iptables.Words("-j MARK --set-xmark", value+"/0x0"), // once is enough
			`-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`,
		}},
	}
}

// Others are the rules that mark packets which no pod of the cluster sent, as far as that can
// be told.
func Others(n sdk.Node, family sdk.Family) []iptables.Rule {
	pods := iptables.FromPods(n.Pods, family)
	switch {
	case n.MasqueradeAll:
		return []iptables.Rule{"-j " + Mark}
	case len(pods) == 0:
		return nil
	}
	var rules []iptables.Rule
	for _, p := range pods {
		rules = append(rules, iptables.Words(p, "-j RETURN"))
	}
	return append(rules, "-j "+Mark)
}

// AddTo adds the object to tables, as if the kernel had it.
func AddTo(t iptables.Tables, bit uint8) {
	for _, c := range Chains(bit) {
		t[c.ID] = c.Rules
	}
	t[jump.At] = slices.Insert(slices.Clone(t[jump.At]), 0, jump.Rule)
}

// Lacks says which steps would give tables the object; none: they have it.
func Lacks(t iptables.Tables, bit uint8) []string { return marking.lacking(t, bit).Steps() }

// lacking is the block after which tables have the object.
func (o *object) lacking(t iptables.Tables, bit uint8) iptables.Block {
	b := iptables.Block{Table: o.jump.At.Table}
	for _, c := range o.chains(bit) {
		if rules, there := t[c.ID]; !there || !slices.Equal(rules, c.Rules) {
			b.Whole = append(b.Whole, c)
		}
	}
	if there := o.ownJumps(t); t.Unsure(o.jump.At) == "" && !slices.Equal(there, []iptables.Jump{o.jump}) {
		b.Delete, b.Insert = there, []iptables.Jump{o.jump}
	}
	return b
}

// place is where a tool has the object, or may have it, as the ledger names it.
func place(t iptables.Tool) string { return fmt.Sprintf("%s %s", t.Family, t.Backend) }

// read is what must be known of chains: their rules, if they are there.
func read(ctx context.Context, tool iptables.Tool, chains ...iptables.ID) (iptables.Tables, error) {
	t := make(iptables.Tables)
	for _, id := range chains {
		listed, there, err := tool.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		if there {
			t[id] = listed
		}
	}
	return t, nil
}
