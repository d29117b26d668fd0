// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// Outline returns what is needed to remove chains from a table: the chains reported by mine without their
// rules, and foreign chains with their rules, which may have jumps. iptables-nft-save takes seconds for tens of
// thousands of chains, so for nft Outline reads chains one by one. For legacy it reads the whole table, which
// is fast. If there are many foreign chains, it reads only the built-in ones: if a jump is in another chain,
// the kernel refuses to remove its target, and the caller uses Save.
func (t Tool) Outline(ctx context.Context, table string, mine func(ID) bool) (Tables, error) {
	if t.Backend == Legacy {
		return t.SaveIf(ctx, mine, table)
	}
	chains, err := t.chains(ctx, table)
	if err != nil {
		return nil, err
	}
	found := make(Tables)
	var others []ID
	for _, chain := range chains {
		if id := (ID{table, chain}); mine(id) {
			found[id] = nil
		} else {
			others = append(others, id)
		}
	}
	if len(found) == 0 {
		return found, nil // without chains of ours there are no jumps to them
	}
	if len(others) > fewOthers {
		others = slices.DeleteFunc(others, func(id ID) bool { return !slices.Contains(builtIn, id.Chain) })
	}
	for _, id := range others {
		rules, _, err := t.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		found[id] = rules
	}
	return found, nil
}

// SaveIf is Save for those of tables that have a chain reported by mine. The other tables cannot have rules
// that lead to such a chain. Finding that out is much faster than printing tens of thousands of other chains.
func (t Tool) SaveIf(ctx context.Context, mine func(ID) bool, tables ...string) (Tables, error) {
	var some []string
	for _, table := range tables {
		chains, err := t.chains(ctx, table)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(chains, func(chain string) bool { return mine(ID{table, chain}) }) {
			some = append(some, table)
		}
	}
	if len(some) == 0 {
		return make(Tables), nil
	}
	return t.Save(ctx, some...)
}

// manyChains is the number of chains above which eachChain reads only the built-in ones: each chain costs a run
// of the program.
const manyChains = 250

// eachChain reads a table that the program cannot print as a whole, chain by chain. If there are many, it reads
// only the built-in ones.
func (t Tool) eachChain(ctx context.Context, table string, into Tables) error {
	chains, err := t.chains(ctx, table)
	for _, chain := range chains {
		id := ID{table, chain}
		if len(chains) > manyChains && !slices.Contains(builtIn, chain) {
			into[id] = []Rule{Unread}
			continue
		}
		rules, there, err := t.Find(ctx, id)
		if err != nil {
			return err
		}
		if there {
			into[id] = rules
		}
	}
	return err
}

// chains returns the names of a table's chains; for legacy without the built-in ones. It does not create the
// table.
func (t Tool) chains(ctx context.Context, table string) (names []string, err error) {
	switch {
	case t.Kernel != nil:
		found, err := t.Kernel.Save(ctx, table)
		for id := range found {
			names = append(names, id.Chain)
		}
		return names, err
	case t.Backend == NFT:
		uses, err := t.Uses(ctx)
		for id := range uses {
			if id.Table == table {
				names = append(names, id.Chain)
			}
		}
		return names, err
	case !slices.Contains(legacyTables(t.Family), table):
		return nil, nil
	}
	counts, err := countTable(t.Family, table)
	if err != nil {
		return nil, err
	}
	return slices.Collect(maps.Keys(counts.Rules)), nil
}

// fewOthers is the number of foreign chains up to which Outline reads all of them.
const fewOthers = 50

// builtIn are the built-in chains, in the order of the kernel's hooks.
var builtIn = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// A ruleCount is the size of the tables of one backend. It is read from the kernel, because a program takes
// long to print the tables where another proxy left some 100,000 chains.
type ruleCount struct {
	rules int // approximate number of rules
	kube  int // number of KUBE- chains plus the approximate number of rules in them
}

// KubeTables returns those of the tables filter, mangle and nat that have chains with the prefix KUBE-. It
// reads no rules.
func (t Tool) KubeTables(ctx context.Context) (tables []string, err error) {
	for _, table := range []string{"filter", "mangle", "nat"} {
		chains, err := t.chains(ctx, table)
		if err != nil {
			return nil, fmt.Errorf("look which tables of %s have chains of Kubernetes: %w", t.Prefix, err)
		}
		if slices.ContainsFunc(chains, isKube) {
			tables = append(tables, table)
		}
	}
	return tables, nil
}

// countNFT counts the rules in nf_tables. The kernel reports the use count of each chain, so no rule is read.
func countNFT(ctx context.Context, family sdk.Family) (ruleCount, error) {
	uses, err := Tool{Family: family}.Uses(ctx)
	var c ruleCount
	for id, use := range uses {
		if !slices.Contains([]string{"filter", "nat", "mangle"}, id.Table) {
			continue
		}
		c.rules += int(use)
		if isKube(id.Chain) {
			c.kube += 1 + int(use)
		}
	}
	return c, err
}

func isKube(chain string) bool {
	return strings.HasPrefix(chain, "KUBE-") && chain != "KUBE-NFT-FORWARD" // this chain is in both backends
}

// countLegacy counts the rules of the legacy tables that exist. It does not ask for others, because that would
// create them.
func countLegacy(ctx context.Context, family sdk.Family) (ruleCount, error) {
	var all ruleCount
	for _, table := range legacyTables(family) {
		if err := ctx.Err(); err != nil {
			return all, err
		}
		counts, err := countTable(family, table)
		if err != nil {
			return all, err
		}
		all.rules += counts.others
		for chain, rules := range counts.Rules {
			all.rules += rules
			if isKube(chain) {
				all.kube += 1 + rules
			}
		}
	}
	return all, nil
}

// Reach reports why this process cannot get at the tables of t, if it cannot. It
// reads none of them.
func (t Tool) Reach() error {
	if t.Backend == NFT {
		_, err := generation()
		return err
	}
	for _, table := range []string{"nat", "filter"} {
		if _, err := TableSize(t.Family, table); err != nil {
			return err
		}
	}
	return nil
}
