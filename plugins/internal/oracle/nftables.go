// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// A Table is a table of nf_tables that was listed, or that would be written.
type Table struct {
	Chains   map[string]Chain
	Elements map[string][]nftnl.Element // by set
}

// A Chain is a chain with its rules, each a list of expressions.
type Chain struct {
	Hook  *nftnl.Hook // nil: a regular chain
	Drops bool        // of a base chain: its policy is drop
	Rules [][]nftnl.Expr
}

// ReadTable reads a table from the kernel.
func ReadTable(ctx context.Context, list nftnl.Listing) (Table, error) {
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

// A TableRules evaluates a table of nf_tables for packets. It does not see later changes of the table.
type TableRules struct {
	table  Table
	chains map[string][]rule
	sets   map[string]*set
	draws  map[draw][]drawn
}

// A step is a compiled expression. The rule continues after it if more is true and there is no verdict.
type step func(*way) (more bool, v *nftnl.Verdict, err error)

// NFTables compiles a table.
func NFTables(table Table) *TableRules {
	t := &TableRules{table: table, chains: make(map[string][]rule), sets: make(map[string]*set), draws: make(map[draw][]drawn)}
	for name, elements := range table.Elements {
		t.sets[name] = newSet(elements)
	}
	for name, c := range table.Chains {
		all := make([]rule, len(c.Rules))
		for i, exprs := range c.Rules {
			var steps []step
			if slices.ContainsFunc(exprs, decides) {
				for _, e := range exprs {
					steps = append(steps, t.compile(e))
				}
			}
			all[i].evaluate = func(w *way) (bool, *nftnl.Verdict, error) { return w.evaluate(steps) }
		}
		t.chains[name] = all
	}
	return t
}

// At follows p on all paths through one base chain.
func (t *TableRules) At(p Packet, chain string) ([]Path, error) {
	var policy *Step
	if t.table.Chains[chain].Drops {
		policy = &Step{Chain: chain, Rule: "policy drop", Matched: true}
	}
	chains := func(name string) (rules []rule, exist bool) { rules, exist = t.chains[name]; return rules, exist }
	paths, err := way{at: Hook{Chain: chain}, chains: chains, proto: protocols[p.Protocol]}.all(p, policy)
	return Merge(paths), err
}

// evaluate evaluates the expressions of a rule until one does not match or there is a verdict. Registers are
// empty at the start.
func (w *way) evaluate(steps []step) (matched bool, v *nftnl.Verdict, err error) {
	w.regs = registers{}
	for _, s := range steps {
		more, v, err := s(w)
		if errors.Is(err, errBreaks) {
			return false, nil, nil
		}
		if v != nil || err != nil || !more {
			return v != nil, v, err
		}
	}
	return false, nil, nil
}

// errBreaks says that an expression has nothing to load, so that the rule does not match (NFT_BREAK).
var errBreaks = errors.New("there is nothing to load")

// unknown returns a step for an expression that the oracle does not support.
func unknown(format string, args ...any) step {
	err := fmt.Errorf(format, args...)
	return func(*way) (bool, *nftnl.Verdict, error) { return false, nil, err }
}

// A set has the elements of a set for lookups.
type set struct {
	width  int // of a key
	exact  map[string]nftnl.Element
	ranges []nftnl.Element
}

// newSet supports elements with KeyEnd, which only sets of several fields have, and other sets of ranges: there
// an element begins a range that ends at the next element with End (net/netfilter/nft_set_rbtree.c).
func newSet(elements []nftnl.Element) *set {
	s := &set{exact: make(map[string]nftnl.Element, len(elements))}
	halves := slices.ContainsFunc(elements, func(e nftnl.Element) bool { return e.End })
	if halves {
		elements = slices.SortedFunc(slices.Values(elements), func(a, b nftnl.Element) int { return cmp.Compare(a.Key, b.Key) })
	}
	for i, e := range elements {
		if e.End {
			continue
		}
		s.width = max(s.width, len(e.Key))
		switch {
		case halves:
			e.KeyEnd = string(bytes.Repeat([]byte{0xff}, len(e.Key)))
			if n := slices.IndexFunc(elements[i:], func(o nftnl.Element) bool { return o.End && o.Key > e.Key }); n > 0 {
				e.KeyEnd = before(elements[i+n].Key)
			}
			s.ranges = append(s.ranges, e)
		case e.KeyEnd == "" || e.KeyEnd == e.Key:
			s.exact[e.Key] = e
		default:
			s.ranges = append(s.ranges, e)
		}
	}
	return s
}

// before returns the key that precedes key.
func before(key string) string {
	b := []byte(key)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]--
		if b[i] != 0xff {
			break
		}
	}
	return string(b)
}

// find returns the element with a key, or whose range contains it. Only the last field of a key may be a range.
func (s *set) find(key string) (nftnl.Element, bool) {
	if e, in := s.exact[key]; in {
		return e, true
	}
	if i := slices.IndexFunc(s.ranges, func(e nftnl.Element) bool { return e.Key <= key && key <= e.KeyEnd }); i >= 0 {
		return s.ranges[i], true
	}
	e, in := s.exact[""] // the catch-all element: NFT_SET_ELEM_CATCHALL
	return e, in
}
