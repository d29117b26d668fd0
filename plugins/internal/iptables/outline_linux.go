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

// Outline is what must be known of a table to take chains out of it: those that mine
// names, without their rules, and the chains of others with theirs, in which a jump may
// stand. To have everything printed by nft's program takes seconds where there are tens of
// thousands of chains; legacy's is fast, and prints all. Where others have many, only those that every table
// has are read: if a jump stands anywhere else, the kernel refuses to remove the chain
// that it leads to, and Save tells more.
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
		return found, nil // where no chain is, no jump leads to it
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

// SaveIf is Save of those of tables in which stands a chain that mine names; of the others
// there is nothing to be known, because no rule leads to a chain that is not there. To find
// that out costs a fraction of having tens of thousands of other chains printed.
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

// manyChains are so many that each is not read by itself: that costs a run of the program.
const manyChains = 250

// eachChain reads a table that the program cannot print as a whole, chain by chain: of many only the kernel's own.
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

// chains are the names of a table's chains; of legacy, but for the kernel's own. A table that
// is not there is not made.
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

// fewOthers are so many chains of others that to ask for each costs nothing beside.
const fewOthers = 50

// builtIn are the chains that packets come to by themselves, in the order of the
// kernel's hooks.
var builtIn = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// A ruleCount is how much stands in one backend. It is taken from the kernel itself:
// to have a program print the tables takes long where a proxy of another kind left
// some 100,000 chains.
type ruleCount struct {
	rules int // about how many
	kube  int // chains that begin with KUBE-, and about as many as stand in them
}

// KubeTables are those tables, of the ones that every kernel has, in which chains
// stand that begin with KUBE-. No rule is read.
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

// countNFT counts the rules of nft's tables of family. The kernel says of a chain how
// many rules it has and how many lead to it, so no rule need be read.
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
	return strings.HasPrefix(chain, "KUBE-") && chain != "KUBE-NFT-FORWARD" // that stands in both backends
}

// countLegacy counts the rules of the tables that legacy has of family. It asks about
// no others: asking for one would make it.
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
