// SPDX-License-Identifier: Apache-2.0

// Package masquerade maintains the chains that all dataplanes share: packets marked by KUBE-MARK-MASQ leave the
// node with an address of the node.
//
//	any chain of nat ─▶ KUBE-MARK-MASQ           sets the mark
//	nat POSTROUTING ──▶ KUBE-POSTROUTING         masquerades packets with the mark
//
// Other software jumps to KUBE-MARK-MASQ too (the portmap plugin of CNI, old kubelets, an administrator), and
// fails if the chain does not exist. So these chains and the jump are one object in each family and backend,
// with kube-proxy's names and rules, whichever dataplane serves. They say nothing about a dataplane's role.
//
// A dataplane that writes rules holds the object from its first write until its Cleanup. The ledger lists the
// holders, and its lock is held during writes, so that one dataplane joins before another leaves. The last
// holder removes the object unless it existed before us, a kubelet created it, or foreign rules lead to it.
//
// Start reading at Hold, for dataplanes that write iptables rules. Keeper is for those that do not.
package masquerade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Mark is the chain that marks packets for masquerading.
const Mark = "KUBE-MARK-MASQ"

// Forward is the chain that accepts packets to Services in iptables' FORWARD, for a dataplane with chains of
// its own in nf_tables: a packet that one base chain drops cannot be accepted by another.
const Forward = "KUBE-NFT-FORWARD"

const table = "nat"

// An object is a group of chains that dataplanes hold together. The last chain is the target of jump.
type object struct {
	name   string // the name in the ledger
	jump   iptables.Jump
	chains func(bit uint8) []iptables.Chain
}

var (
	marking    = &object{Mark, jump, Chains}
	forwarding = &object{Forward, iptables.Jump{At: iptables.ID{Table: "filter", Chain: "FORWARD"}, Rule: "-j " + Forward}, forwardChains}
)

// forwardChains returns the chain that accepts packets with the mark and those of established connections.
func forwardChains(bit uint8) []iptables.Chain {
	return []iptables.Chain{{ID: iptables.ID{Table: "filter", Chain: Forward}, Rules: iptables.Forwarded(sdk.Node{MasqueradeBit: bit})}}
}

// ids returns the names of the object's chains.
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

// Chains returns the object's chains for a mark bit.
func Chains(bit uint8) []iptables.Chain {
	masked := iptables.OneBit(bit)
	value, _, _ := strings.Cut(masked, "/")
	return []iptables.Chain{
		{ID: mark, Rules: []iptables.Rule{iptables.Words("-j MARK --set-xmark", masked)}},
		{ID: postrouting, Rules: []iptables.Rule{
			iptables.Words("-m mark ! --mark", masked, "-j RETURN"),
			iptables.Words("-j MARK --set-xmark", value+"/0x0"), // clear the mark, so that the packet is masqueraded once
			`-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`,
		}},
	}
}

// Others returns the rules that mark packets which no pod of the cluster sent, if pods can be recognized.
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

// missing returns the block that creates or repairs the object in tables.
func (o *object) missing(t iptables.Tables, bit uint8) iptables.Block {
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

// placeOf returns the ledger's name for the family and backend of a tool.
func placeOf(t iptables.Tool) string { return fmt.Sprintf("%s %s", t.Family, t.Backend) }

// read returns the rules of those of the chains that exist.
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
