// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// leftovers is the block that removes what is ours from one table.
func leftovers(table string, found iptables.Tables, kubeProxy bool) iptables.Block {
	b := iptables.Block{Table: table}
	mine := func(chain string) bool { return isOurs(chain) && (chain != canary || kubeProxy) }
	for _, id := range slices.SortedFunc(maps.Keys(found), iptables.ID.Compare) {
		if mine(id.Chain) {
			b.Remove = append(b.Remove, id)
			continue
		}
		for _, r := range found[id] {
			if mine(r.Target()) {
				b.Delete = append(b.Delete, iptables.Jump{At: id, Rule: r})
			}
		}
	}
	if kubeProxy {
		shared(&b, found)
	}
	return b
}

// shared adds to b what kube-proxy and the kubelet both make: the guard of 127.0.0.0/8
// in KUBE-FIREWALL, and then the chain, if nothing else stands in it; and
// KUBE-MARK-DROP, if nothing leads to it. A kubelet that wants them makes them
// again within a minute.
func shared(b *iptables.Block, found iptables.Tables) {
	firewall := filter("KUBE-FIREWALL")
	if rules, ok := found[firewall]; ok && b.Table == "filter" && !slices.ContainsFunc(rules, notGuard) {
		lead(b, found, firewall)
	}
	if markDrop := nat("KUBE-MARK-DROP"); b.Table == "nat" {
		if _, ok := found[markDrop]; ok && !leadsTo(found, markDrop.Chain) {
			b.Remove = append(b.Remove, markDrop)
		}
	}
}

// lead has b remove chain id with every rule that leads to it.
func lead(b *iptables.Block, found iptables.Tables, id iptables.ID) {
	b.Remove = append(b.Remove, id)
	for _, at := range slices.SortedFunc(maps.Keys(found), iptables.ID.Compare) {
		for _, r := range found[at] {
			if r.Target() == id.Chain && !isOurs(at.Chain) {
				b.Delete = append(b.Delete, iptables.Jump{At: at, Rule: r})
			}
		}
	}
}

// unroute has the kernel route 127.0.0.0/8 no more, if kube-proxy had it do so: its
// guard tells, and goes now. It adds nothing to what was given back already.
func unroute(ctx context.Context, dryRun bool, given []string) ([]string, error) {
	step := routeLocalnet + " back to 0"
	value, err := os.ReadFile(routeLocalnet)
	if err != nil || strings.TrimSpace(string(value)) == "0" || slices.Contains(given, step) {
		return nil, nil // there is no IPv4, or nothing to do
	}
	guarded, err := guardGoes(ctx)
	if err != nil || !guarded {
		return nil, err
	}
	if !dryRun {
		if err := os.WriteFile(routeLocalnet, []byte("0"), 0o644); err != nil {
			return nil, fmt.Errorf("have the kernel route 127.0.0.0/8 no more: %w", err)
		}
	}
	return []string{step}, nil
}

// guardGoes reports whether the guard stands in a KUBE-FIREWALL that goes.
func guardGoes(ctx context.Context) (bool, error) {
	for _, tool := range tools(ctx, sdk.IPv4) {
		rules, _, err := tool.List(ctx, filter("KUBE-FIREWALL"))
		if err != nil {
			return false, err
		}
		if len(rules) > 0 && !slices.ContainsFunc(rules, notGuard) {
			return true, nil
		}
	}
	return false, nil
}

func notGuard(r iptables.Rule) bool {
	return !strings.Contains(string(r), "block incoming localnet connections")
}

func leadsTo(found iptables.Tables, chain string) bool {
	for id, rules := range found {
		if !isOurs(id.Chain) && slices.ContainsFunc(rules, func(r iptables.Rule) bool { return r.Target() == chain }) {
			return true
		}
	}
	return false
}
