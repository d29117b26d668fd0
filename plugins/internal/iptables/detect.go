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
	Rules map[Backend]int // about how many rules each has
	Kube  map[Backend]int // how much of that stands in chains that begin with KUBE-
	Has   map[Backend]bool

	Plain Backend // the one that the program "iptables" writes to; empty: there is none
}

// Mixed reports whether Kubernetes' rules stand in both.
func (u Use) Mixed() bool { return u.Kube[NFT] > 0 && u.Kube[Legacy] > 0 }

// Choose is the backend that the node uses already: the one where Kubernetes'
// rules are, else the one with more rules, else the one that other software on the node
// writes to when it runs "iptables", else nft.
func (u Use) Choose() Backend {
	switch {
	case u.Has[Legacy] && !u.Has[NFT]:
		return Legacy
	case u.Kube[Legacy] != u.Kube[NFT]:
		return most(u.Kube)
	case u.Rules[Legacy] != u.Rules[NFT]:
		return most(u.Rules)
	case u.Plain == Legacy && u.Has[Legacy]:
		return Legacy
	}
	return NFT
}

func most(n map[Backend]int) Backend {
	if n[Legacy] > n[NFT] {
		return Legacy
	}
	return NFT
}

// Look counts the rules in each backend, by asking the kernel: the programs only
// say whether they are there. It changes nothing, and takes no longer than a second
// where a kube-proxy left rules for 10,000 Services.
func Look(ctx context.Context, family sdk.Family) (Use, error) {
	u := Use{Rules: make(map[Backend]int), Kube: make(map[Backend]int), Has: make(map[Backend]bool)}
	for backend, count := range map[Backend]func(context.Context, sdk.Family) (ruleCount, error){Legacy: countLegacy, NFT: countNFT} {
		if _, err := Open(ctx, family, backend); err != nil {
			continue
		}
		u.Has[backend] = true
		if c, err := count(ctx, family); err == nil { // else this kernel lacks the backend
			u.Rules[backend], u.Kube[backend] = c.rules, c.allKube()
		}
	}
	if plain, err := (Tool{Family: family, Prefix: program(family)}).writesTo(ctx); err == nil {
		u.Plain = plain
	}
	return u, ctx.Err()
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
// namespace. Legacy's tables are made by asking for them, so this asks none.
func InUse(family sdk.Family, backend Backend) bool {
	if backend == NFT {
		return !lacksNFT(family)
	}
	return len(legacyTables(family)) > 0
}
