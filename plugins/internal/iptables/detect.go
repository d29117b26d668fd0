// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"os"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// Use is what a node's tables show of the two backends.
type Use struct {
	Rules map[Backend]int // how many rules each has
	Kube  map[Backend]int // how many of those lead to or stand in chains that begin with KUBE-
	Has   map[Backend]bool
}

// Mixed reports whether Kubernetes' rules stand in both.
func (u Use) Mixed() bool { return u.Kube[NFT] > 0 && u.Kube[Legacy] > 0 }

// Choose is the backend that the node uses already: the one where Kubernetes'
// rules are, else the one with more rules, else nft if it can.
func (u Use) Choose() Backend {
	switch {
	case u.Has[Legacy] && !u.Has[NFT]:
		return Legacy
	case u.Kube[Legacy] != u.Kube[NFT]:
		return most(u.Kube)
	case u.Rules[Legacy] != u.Rules[NFT]:
		return most(u.Rules)
	}
	return NFT
}

func most(n map[Backend]int) Backend {
	if n[Legacy] > n[NFT] {
		return Legacy
	}
	return NFT
}

// Look counts the rules in each backend. It asks legacy only about tables that
// exist: asking it for others would make them.
func Look(ctx context.Context, family sdk.Family) (Use, error) {
	u := Use{Rules: make(map[Backend]int), Kube: make(map[Backend]int), Has: make(map[Backend]bool)}
	if t, err := Open(ctx, family, Legacy); err == nil {
		if err := u.count(ctx, t, legacyTables(family)); err != nil {
			return u, err
		}
	}
	if t, err := Open(ctx, family, NFT); err == nil {
		if err := u.count(ctx, t, []string{"filter", "nat", "mangle"}); err != nil {
			return u, err
		}
	}
	return u, ctx.Err()
}

func (u Use) count(ctx context.Context, t Tool, names []string) error {
	u.Has[t.Backend] = true
	for _, name := range names {
		tables, err := t.Save(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			continue // this kernel lacks the backend
		}
		for id, rules := range tables {
			u.Rules[t.Backend] += len(rules)
			if strings.HasPrefix(id.Chain, "KUBE-") {
				u.Kube[t.Backend] += 1 + len(rules)
			}
		}
	}
	return nil
}

// legacyTables are the tables that legacy iptables has in this network namespace.
func legacyTables(family sdk.Family) []string {
	path := "/proc/thread-self/net/ip_tables_names"
	if family == sdk.IPv6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil // the module is not loaded: there are none
	}
	return strings.Fields(string(data))
}

// InUse reports whether backend may have rules of family in this network
// namespace. Legacy's tables are made by asking for them, so this asks nobody.
func InUse(family sdk.Family, backend Backend) bool {
	if backend == NFT {
		return !lacksNFT(family)
	}
	return len(legacyTables(family)) > 0
}
