// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
)

// A Piece has the rules of one Service: its chains, and the tree entries that lead to them.
type Piece struct {
	Chains  []Chain // sorted by name
	Entries []Entry // sorted by tree and key
}

// A Chain is a chain with the text of its rules, one per line.
type Chain struct {
	ID   iptables.ID
	Text string
}

// An Entry matches packets in one of the trees. In is the index in Config.Trees.
type Entry struct {
	In   int
	Key  tree.Key
	Rule iptables.Rule // what to do with the packets: "-j KUBE-SVC-…"
}

// NewPiece returns the piece with these chains and entries. If a name occurs twice, the later one counts.
func NewPiece(chains []iptables.Chain, entries []Entry) Piece {
	var p Piece
	if len(chains) > 0 {
		p.Chains = make([]Chain, 0, len(chains))
	}
	for _, c := range slices.Backward(chains) {
		p.Chains = append(p.Chains, Chain{c.ID, iptables.Join(c.Rules)})
	}
	slices.SortStableFunc(p.Chains, func(a, b Chain) int { return a.ID.Compare(b.ID) })
	p.Chains = slices.CompactFunc(p.Chains, func(a, b Chain) bool { return a.ID == b.ID })
	p.Entries = slices.Clone(entries)
	slices.Reverse(p.Entries)
	slices.SortStableFunc(p.Entries, Entry.compare)
	p.Entries = slices.CompactFunc(p.Entries, func(a, b Entry) bool { return a.compare(b) == 0 })
	return p
}

func (e Entry) compare(f Entry) int { return cmp.Or(cmp.Compare(e.In, f.In), e.Key.Compare(f.Key)) }

// Equal reports whether both pieces have the same rules.
func (p Piece) Equal(q Piece) bool {
	return slices.Equal(p.Chains, q.Chains) && slices.Equal(p.Entries, q.Entries)
}

// IsEmpty reports whether p has no rules.
func (p Piece) IsEmpty() bool { return len(p.Chains)+len(p.Entries) == 0 }

// Chain returns the rules that p has in a chain.
func (p Piece) Chain(id iptables.ID) (text string, ok bool) {
	i, ok := slices.BinarySearchFunc(p.Chains, id, func(c Chain, id iptables.ID) int { return c.ID.Compare(id) })
	if !ok {
		return "", false
	}
	return p.Chains[i].Text, true
}

// Entry returns the rule that p has in a tree for a key.
func (p Piece) Entry(in int, k tree.Key) (iptables.Rule, bool) {
	i, ok := slices.BinarySearchFunc(p.Entries, Entry{In: in, Key: k}, Entry.compare)
	if !ok {
		return "", false
	}
	return p.Entries[i].Rule, true
}

// A Key identifies an entry of the reconciler.
type Key struct {
	kind  kind
	chain iptables.ID   // unset for entries of trees
	in    int           // for an entry of a tree: the tree,
	key   tree.Key      // its key there,
	rule  iptables.Rule // and its rule, if several Services may need the entry: its value is then empty
}

type kind uint8

const (
	ofChain kind = iota
	ofEntry
	ofJumps  // at a built-in chain
	ofDamage // of a chain of a tree
)

func chainKey(id iptables.ID) Key { return Key{kind: ofChain, chain: id} }
func jumpsKey(at iptables.ID) Key { return Key{kind: ofJumps, chain: at} }

// entryKey returns the key and the value of an entry of a tree.
func (r *Rules) entryKey(in int, k tree.Key, rule iptables.Rule) (Key, string) {
	if r.Trees[in].Shared {
		return Key{kind: ofEntry, in: in, key: k, rule: rule}, ""
	}
	return Key{kind: ofEntry, in: in, key: k}, string(rule)
}
