// SPDX-License-Identifier: Apache-2.0

// Package nftrace walks packets through a table of nf_tables as the kernel would, without any
// kernel: from what plugins/internal/nftnl lists of it to where the first packet of a connection
// goes. It knows expressions and hooks, and nothing of what a table is for. A rule that it does
// not understand is an error that names the rule, and only for packets that come to it.
package nftrace

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// A Table is one as it was listed, or as it would be.
type Table struct {
	Chains   map[string]Chain
	Elements map[string][]nftnl.Element // by set
}

// A Chain is its rules, and each rule its expressions.
type Chain struct {
	Hook  *nftnl.Hook // nil: other chains lead to it
	Drops bool        // of a base chain: it drops what its rules let pass
	Rules [][]nftnl.Expr
}

// Read reads a table from the kernel.
func Read(ctx context.Context, list nftnl.Listing) (Table, error) {
	t := Table{Chains: make(map[string]Chain), Elements: make(map[string][]nftnl.Element)}
	chains, err := list.Chains(ctx)
	if err != nil {
		return t, err
	}
	rules, err := list.Rules(ctx, "")
	if err != nil {
		return t, err
	}
	for name, seen := range chains {
		c := Chain{Hook: seen.Hook, Drops: seen.Drops}
		for _, r := range rules[name] {
			c.Rules = append(c.Rules, r.Exprs())
		}
		t.Chains[name] = c
	}
	sets, err := list.Sets(ctx)
	if err != nil {
		return t, err
	}
	for name := range sets {
		if t.Elements[name], err = list.Elements(ctx, name); err != nil {
			return t, err
		}
	}
	return t, nil
}

// A base is a base chain.
type base struct {
	name string
	hook nftnl.Hook
}

// bases are the base chains at a hook, in the order in which packets come to them.
func (t Table) bases(at uint32) (all []base) {
	for name, c := range t.Chains {
		if c.Hook != nil && c.Hook.At == at {
			all = append(all, base{name, *c.Hook})
		}
	}
	slices.SortFunc(all, func(a, b base) int { return cmp.Compare(a.hook.Priority, b.hook.Priority) })
	return all
}

// A set is the elements of one, to be looked up.
type set struct {
	width  int // of a key
	exact  map[string]nftnl.Element
	ranges []nftnl.Element
}

func newSet(elements []nftnl.Element) *set {
	s := &set{exact: make(map[string]nftnl.Element, len(elements))}
	for _, e := range elements {
		s.width = len(e.Key)
		if e.KeyEnd == "" || e.KeyEnd == e.Key {
			s.exact[e.Key] = e
		} else {
			s.ranges = append(s.ranges, e)
		}
	}
	return s
}

// find is the element with a key, or with a range that has it: only the last field of a key may
// be a range.
func (s *set) find(key string) (nftnl.Element, bool) {
	if e, in := s.exact[key]; in {
		return e, true
	}
	i := slices.IndexFunc(s.ranges, func(e nftnl.Element) bool { return e.Key <= key && key <= e.KeyEnd })
	if i < 0 {
		return nftnl.Element{}, false
	}
	return s.ranges[i], true
}

// An Unknown is a rule of which this package cannot tell what it does to a packet.
type Unknown struct {
	Chain string
	Rule  int // its place in the chain, from 1
	Why   string
}

func (u *Unknown) Error() string { return fmt.Sprintf("chain %s, rule %d: %s", u.Chain, u.Rule, u.Why) }
