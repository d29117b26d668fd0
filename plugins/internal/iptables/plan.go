// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// A Plan is a sequence of blocks that take effect one after the other.
type Plan []Block

// Steps describes the plan, in the order in which the changes take effect.
func (p Plan) Steps() []string {
	var steps []string
	for _, b := range p {
		steps = append(steps, b.Steps()...)
	}
	return steps
}

// Script returns the plan as input for iptables-restore of a backend.
func (p Plan) Script(to Backend) *Script {
	s := new(Script)
	for _, b := range p {
		b.Write(s, to)
	}
	return s
}

// A Limit is the maximum size of one piece of a plan.
type Limit struct {
	Chains int
	Lines  int // lines of written chains: one per rule, plus one per chain
}

// Lines returns the number of lines that write chains: one per rule, plus one per chain.
func Lines(chains []Chain) int {
	n := 0
	for _, c := range chains {
		n += 1 + len(c.Rules)
	}
	return n
}

func (l Limit) holds(p Plan) bool {
	var all Limit
	for _, b := range p {
		all.Chains += len(b.Whole) + len(b.Remove)
		all.Lines += Lines(b.Whole)
	}
	return all.Chains <= l.Chains && all.Lines <= l.Lines
}

// Cut divides chains into parts, in order. A chain that exceeds the limit is a part of its own.
func (l Limit) Cut(chains []Chain) [][]Chain {
	var parts [][]Chain
	from, lines := 0, 0
	for i, c := range chains {
		if i > from && (i-from == l.Chains || lines+1+len(c.Rules) > l.Lines) {
			parts = append(parts, chains[from:i])
			from, lines = i, 0
		}
		lines += 1 + len(c.Rules)
	}
	if from < len(chains) {
		parts = append(parts, chains[from:])
	}
	return parts
}

// Cut divides a plan that is too large for one piece. Chains are written before the chains that lead to them,
// so that no rule leads to a chain that does not exist yet. All chains to remove are emptied before the first
// one is removed.
func (p Plan) Cut(limit Limit, rank func(Chain) int) []Plan {
	if limit.holds(p) {
		return []Plan{p}
	}
	var all []Plan
	for _, b := range p {
		chains := slices.Clone(b.Whole)
		slices.SortStableFunc(chains, func(x, y Chain) int { return cmp.Compare(rank(x), rank(y)) })
		for _, part := range limit.Cut(chains) {
			all = append(all, Plan{{Table: b.Table, Whole: part}})
		}
		if jumps := (Block{Table: b.Table, Delete: b.Delete, Insert: b.Insert}); !jumps.Empty() {
			all = append(all, Plan{jumps})
		}
		for part := range slices.Chunk(b.Remove, limit.Chains) {
			emptied := Block{Table: b.Table}
			for _, id := range part {
				emptied.Whole = append(emptied.Whole, Chain{ID: id})
			}
			all = append(all, Plan{emptied})
		}
		for part := range slices.Chunk(b.Remove, limit.Chains) {
			all = append(all, Plan{{Table: b.Table, Remove: part}})
		}
	}
	return all
}

// Write writes p, in pieces if it is large. One run of the program takes many pieces, each of which takes
// effect by itself. natRules is the number of rules in nat.
func (p Plan) Write(ctx context.Context, tool Tool, rank func(Chain) int, natRules int) error {
	if len(p) == 0 {
		return nil
	}
	each, pieces := pace(tool.Backend, natRules)
	if tool.Most != (Limit{}) {
		each = tool.Most
	}
	for some := range slices.Chunk(p.Cut(each, rank), pieces) {
		if err := tool.Restore(ctx, slices.Concat(some...).Script(tool.Backend)); err != nil {
			return err
		}
		if tool.Heard != nil {
			tool.Heard()
		}
	}
	return nil
}

// pace returns the size of a piece and the number of pieces for one run of the program: so many that its
// startup time is small in comparison, and so few that progress is visible. natRules is the number of rules in
// nat.
//
// nft takes a time that grows with the square of the chains in a piece: 10,000 Services cost 1.1 s of CPU time
// with 500 chains per piece, 3.6 s with 4,000, and 7.7 s in one piece. legacy copies the whole table for each
// piece, so it gets all in one.
//
// iptables-nft-restore also keeps the chains that the rules of a piece lead to in a list, which it searches for
// each rule: 20,000 rules with a target chain each take it 8 s in one piece.
//
// For each piece that adds a rule, the kernel also checks all paths through the existing rules: 0.1 s for
// 100,000. So with many rules the pieces are larger: a change of 600 of 3,000 Services with ten endpoints then
// costs 1.8 s of CPU time, and 2.4 s with the small ones.
func pace(backend Backend, natRules int) (each Limit, pieces int) {
	switch {
	case backend != NFT:
		return Limit{math.MaxInt, math.MaxInt}, 1
	case natRules > manyRules:
		return Limit{Chains: 1500, Lines: 6000}, 8
	}
	return Limit{Chains: 500, Lines: 2000}, 16
}

// manyRules is the number of rules above which checking them costs more than larger pieces do.
const manyRules = 20_000
