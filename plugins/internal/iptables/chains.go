// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// SaveIf is Save for those of tables that have a chain reported by mine. The other tables cannot have rules
// that lead to such a chain. For nft it asks the kernel first, because printing tens of thousands of other
// chains takes long. It does not create legacy tables.
func (t Tool) SaveIf(ctx context.Context, mine func(ID) bool, tables ...string) (Tables, error) {
	has := make(map[string]bool)
	switch asks := t.Kernel == nil; {
	case asks && t.Backend == NFT:
		uses, err := t.Uses(ctx)
		if err != nil {
			return nil, err
		}
		for id := range uses {
			has[id.Table] = has[id.Table] || mine(id)
		}
		tables = slices.DeleteFunc(slices.Clone(tables), func(table string) bool { return !has[table] })
	case asks:
		exist := legacyTables(t.Family)
		tables = slices.DeleteFunc(slices.Clone(tables), func(table string) bool { return !slices.Contains(exist, table) })
	}
	if len(tables) == 0 {
		return make(Tables), nil
	}
	found, err := t.Save(ctx, tables...)
	for id := range found {
		has[id.Table] = has[id.Table] || mine(id)
	}
	maps.DeleteFunc(found, func(id ID, _ []Rule) bool { return !has[id.Table] })
	return found, err
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

// chains returns the names of the chains in a table of nf_tables.
func (t Tool) chains(ctx context.Context, table string) (names []string, err error) {
	uses, err := t.Uses(ctx)
	for id := range uses {
		if id.Table == table {
			names = append(names, id.Chain)
		}
	}
	return names, err
}

// builtIn are the built-in chains, in the order of the kernel's hooks.
var builtIn = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// count returns the approximate number of rules, and the number of KUBE- chains with the rules in them. For nft
// it reads no rule: the kernel reports the use count of each chain.
func (t Tool) count(ctx context.Context) (rules, kube int, err error) {
	add := func(id ID, n int) {
		rules += n
		if isKube(id.Chain) {
			kube += 1 + n
		}
	}
	if t.Backend == NFT {
		uses, err := t.Uses(ctx)
		for id, use := range uses {
			if slices.Contains([]string{"filter", "nat", "mangle"}, id.Table) {
				add(id, int(use))
			}
		}
		return rules, kube, err
	}
	tables, err := t.SaveIf(ctx, func(ID) bool { return true }, legacyTables(t.Family)...)
	for id, all := range tables {
		add(id, len(all))
	}
	return rules, kube, err
}

func isKube(chain string) bool {
	return strings.HasPrefix(chain, "KUBE-") && chain != "KUBE-NFT-FORWARD" // this chain is in both backends
}

// LegacyDrops returns the built-in chains of legacy's filter table that have the policy DROP and do not lead to
// chain but. It does not create the table. It runs a program only if a policy is DROP.
func LegacyDrops(ctx context.Context, family sdk.Family, but string) (chains []string, err error) {
	if !slices.Contains(legacyTables(family), "filter") {
		return nil, nil
	}
	err = eachEntry(family, "filter", func(e entry) {
		if e.policy != "" && e.drops {
			chains = append(chains, e.policy)
		}
	})
	if err != nil || len(chains) == 0 {
		return nil, err
	}
	t, err := Open(ctx, family, Legacy)
	if err != nil {
		return chains, ctx.Err() // without the program nothing of ours is there
	}
	tables, err := t.Save(ctx, "filter")
	return slices.DeleteFunc(chains, func(chain string) bool {
		return slices.ContainsFunc(tables[ID{"filter", chain}], func(r Rule) bool { return r.Target() == but })
	}), err
}

// matches are the iptables matches in the rules of our modes.
var matches = []string{"addrtype", "comment", "conntrack", "mark", "recent", "statistic"}

// missingMatches returns the kernel options of those matches that this kernel does not have and cannot load.
func (t Tool) missingMatches(names ...string) (options []string) {
	for _, name := range names {
		ask := t.asksLegacy
		if t.Backend == NFT {
			ask = func(name string) error {
				return withNFTSoon(func(ctx context.Context, conn *nftnl.Conn) error {
					return conn.HasMatch(ctx, nftFamilies[t.Family], name)
				})
			}
		}
		if errors.Is(ask(name), syscall.ENOENT) { // other errors have other causes
			options = append(options, "CONFIG_NETFILTER_XT_MATCH_"+strings.ToUpper(name))
		}
	}
	return options
}
