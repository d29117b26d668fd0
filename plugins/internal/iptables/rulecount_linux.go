// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// A ruleCount is how much stands in one backend. It is taken from the kernel itself:
// to have a program print the tables takes long where a proxy of another kind left
// some 100,000 chains.
type ruleCount struct {
	rules int            // about how many
	kube  map[string]int // of each table: chains that begin with KUBE-, and about as many as stand in them
}

// allKube is what of Kubernetes' stands in all tables.
func (c ruleCount) allKube() (n int) {
	for _, some := range c.kube {
		n += some
	}
	return n
}

// KubeTables are those tables, of the ones that every kernel has, in which chains
// stand that begin with KUBE-. It takes no longer than Look.
func (t Tool) KubeTables(ctx context.Context) ([]string, error) {
	count := countLegacy
	if t.Backend == NFT {
		count = countNFT
	}
	c, err := count(ctx, t.Family)
	if err != nil {
		return nil, fmt.Errorf("look which tables of %s have chains of Kubernetes: %w", t.Prefix, err)
	}
	return slices.Sorted(maps.Keys(c.kube)), nil
}

// countNFT counts the rules of nft's tables of family. The kernel says of a chain how
// many rules it has and how many lead to it, so no rule need be read.
func countNFT(ctx context.Context, family sdk.Family) (ruleCount, error) {
	c := ruleCount{kube: make(map[string]int)}
	err := dumpNetfilter(ctx, unix.NFT_MSG_GETCHAIN, nfproto(family), func(data []byte) {
		table := attribute(data, unix.NFTA_CHAIN_TABLE)
		if !slices.Contains([]string{"filter", "nat", "mangle"}, table) {
			return
		}
		used := 0
		if use := attributeBytes(data, unix.NFTA_CHAIN_USE); len(use) == 4 {
			used = int(binary.BigEndian.Uint32(use))
		}
		c.rules += used
		if isKube(attribute(data, unix.NFTA_CHAIN_NAME)) {
			c.kube[table] += 1 + used
		}
	})
	return c, err
}

func isKube(chain string) bool { return strings.HasPrefix(chain, "KUBE-") }

// countLegacy counts the rules of the tables that legacy has of family. It asks about
// no others: asking for one would make it.
func countLegacy(ctx context.Context, family sdk.Family) (ruleCount, error) {
	all := ruleCount{kube: make(map[string]int)}
	for _, table := range legacyTables(family) {
		if err := ctx.Err(); err != nil {
			return all, err
		}
		counts, err := CountTable(family, table)
		if err != nil {
			return all, err
		}
		all.rules += counts.others
		for chain, rules := range counts.Rules {
			all.rules += rules
			if isKube(chain) {
				all.kube[table] += 1 + rules
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
