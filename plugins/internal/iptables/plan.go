// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// A Plan is blocks that take effect one after the other.
type Plan []Block

// Steps are the plan for people: add before remove, in the order in which they take effect.
func (p Plan) Steps() []string {
	var steps []string
	for _, b := range p {
		steps = append(steps, b.Steps()...)
	}
	return steps
}

// Script is the whole plan as the iptables-restore of a backend takes it.
func (p Plan) Script(to Backend) *Script {
	s := new(Script)
	for _, b := range p {
		b.Write(s, to)
	}
	return s
}

// A Limit is how much one piece of a plan may hold.
type Limit struct {
	Chains int
	Lines  int // of chains that are written: one more than a chain has rules
}

// Lines are the lines by which chains are written: one more than each has rules.
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

// Cut divides chains, in order. A chain that is too large by itself is a part of its own.
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

// Cut divides a plan that is too large for one piece. The chains that others lead to are
// written first, so that no rule leads to a chain that is not written yet; those that are
// removed are all emptied before the first is removed. So are many in any case: legacy's
// program takes a time that grows with the square of those that are not empty (33,000: 1.5 s
// of a processor at once, 0.6 s emptied first).
func (p Plan) Cut(limit Limit, rank func(Chain) int) []Plan {
	if limit.holds(p) && !p.removes(manyRemoved) {
		return []Plan{p}
	}
	var all []Plan
	for _, b := range p {
		chains := slices.Clone(b.Whole)
		slices.SortStableFunc(chains, func(x, y Chain) int { return cmp.Compare(rank(x), rank(y)) })
		parts := limit.Cut(chains)
		for _, part := range parts[:max(0, len(parts)-1)] {
			all = append(all, Plan{{Table: b.Table, Whole: part}})
		}
		last := Block{Table: b.Table, Delete: b.Delete, Insert: b.Insert}
		if len(parts) > 0 {
			last.Whole = parts[len(parts)-1]
		}
		if !last.Empty() {
			all = append(all, Plan{last})
		}
		for part := range slices.Chunk(b.Remove, limit.Chains) {
			all = append(all, Plan{{Table: b.Table, Whole: Emptied(part)}})
		}
		for part := range slices.Chunk(b.Remove, limit.Chains) {
			all = append(all, Plan{{Table: b.Table, Remove: part}})
		}
	}
	return all
}

// manyRemoved is how many chains are emptied before they are removed.
const manyRemoved = 1000

func (p Plan) removes(many int) bool {
	return slices.ContainsFunc(p, func(b Block) bool { return len(b.Remove) > many })
}

// Write carries out p, in pieces if it is large. Many pieces go in by one run of the
// program: each takes effect by itself. there is how many rules the table of nat has.
func (p Plan) Write(ctx context.Context, tool Tool, rank func(Chain) int, there int) error {
	if len(p) == 0 {
		return nil
	}
	each, pieces := pace(tool.Backend, there)
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

// pace is how much goes into one piece, and how many pieces one run of a program is handed:
// so many that starting it costs little beside, and so few that progress is seen. there is
// how many rules the table of nat has.
//
// nft takes a time that grows with the square of the chains: 10,000 Services cost 1.1 s
// of a processor by 500 chains at a time, 3.6 s by 4,000, and 7.7 s at once. legacy
// copies the whole table for each piece, so it takes all in one.
//
// nft's program also keeps the chains that rules of a piece lead to in a list, which it
// searches from the beginning for each rule: 20,000 rules, to a chain each, take it 8 s in
// one piece.
//
// And the kernel checks, with each piece that adds a rule, every way through the rules that
// are there: 0.1 s among 100,000. So where there are many the pieces are fewer: then a
// change of 600 of 3,000 Services with ten endpoints costs 1.8 s of a processor, and 2.4 s
// by the small ones.
func pace(backend Backend, there int) (each Limit, pieces int) {
	switch {
	case backend != NFT:
		return Limit{math.MaxInt, math.MaxInt}, 1
	case there > manyRules:
		return Limit{Chains: 1500, Lines: 6000}, 8
	}
	return Limit{Chains: 500, Lines: 2000}, 16
}

// manyRules is so many that to check them all costs more than larger pieces do.
const manyRules = 20_000
