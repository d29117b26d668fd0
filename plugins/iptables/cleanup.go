// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/sweep"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// sweepAll removes our jumps and chains in both families and both backends, and restores kernel parameters.
// kube-proxy's rules have the same chain names and are removed, too. Objects that only kube-proxy creates are
// removed if l.KubeProxy is set.
func sweepAll(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	// Restore parameters first: KUBE-LOCALNET-GUARD must be in place while the kernel routes 127.0.0.0/8.
	given, err := env.GiveBack(l)
	errs := []error{err}
	if l.KubeProxy {
		closed, err := disableRouteLocalnet(ctx, l.DryRun, given)
		if err != nil {
			return given, errors.Join(append(errs, err)...) // keep kube-proxy's guard
		}
		given = append(given, closed...)
	}
	gone, err := sweepRules(l.KubeProxy).All(ctx, l, env)
	errs = append(errs, err)
	closed, err := closeAccounts(ctx, l.DryRun)
	gone = append(gone, closed...)
	errs = append(errs, err)
	gone = append(gone, given...)
	return gone, errors.Join(errs...)
}

// sweepRules returns the rules to remove.
func sweepRules(kubeProxy bool) sweep.Rules {
	ours := func(id iptables.ID) bool { return isOurs(id) && (id.Chain != canary || kubeProxy) }
	return sweep.Rules{
		Mode: mode, Ours: ours, Rank: rank, Tables: []string{"filter", "mangle", "nat"}, // in mangle there is only kube-proxy's canary
		Leftovers: func(table string, found iptables.Tables) (iptables.Block, []string) {
			return leftovers(table, found, kubeProxy)
		},
	}
}

// leftovers returns the block that removes our chains from one table, and descriptions of the chains that are
// kept because foreign rules lead to them.
func leftovers(table string, found iptables.Tables, kubeProxy bool) (iptables.Block, []string) {
	b, kept := found.Leftovers(table, func(id iptables.ID) bool {
		return isOurs(id) && (id.Chain != canary || kubeProxy) || kubeProxy && id == firewall && firewallIsRemoved(found)
	})
	if _, there := found[markDrop]; there && kubeProxy && table == markDrop.Table {
		if from, leads := leadsTo(found, markDrop); leads {
			kept = append(kept, fmt.Sprintf("keep %s: a rule of %s leads to it", markDrop, from.Chain))
		} else {
			b.Remove = append(b.Remove, markDrop)
		}
	}
	return b, kept
}

// Both kube-proxy and the kubelet create these chains. From KUBE-FIREWALL the guard of 127.0.0.0/8 is removed,
// and the chain too if it has no other rules. KUBE-MARK-DROP is removed if no rule leads to it. A kubelet that
// needs them creates them again within a minute.
var (
	firewall = filter("KUBE-FIREWALL")
	markDrop = nat("KUBE-MARK-DROP")
)

// firewallIsRemoved reports whether KUBE-FIREWALL can be removed: its only rule is the guard, and no foreign
// rule leads to it.
func firewallIsRemoved(found iptables.Tables) bool {
	_, held := found.Held(func(id iptables.ID) bool { return id == firewall })[firewall]
	return !held && !slices.ContainsFunc(found[firewall], notGuard)
}

// disableRouteLocalnet sets route_localnet to 0 if kube-proxy had set it. The guard in KUBE-FIREWALL shows that
// it did, and is about to be removed. If the parameter was already restored (given), it does nothing.
func disableRouteLocalnet(ctx context.Context, dryRun bool, given []string) ([]string, error) {
	step := sysctl.RouteLocalnet + " back to 0"
	value, err := os.ReadFile(sysctl.RouteLocalnet)
	if err != nil || strings.TrimSpace(string(value)) == "0" || slices.Contains(given, step) {
		return nil, nil // the kernel has no IPv4, or the parameter is 0 already
	}
	guarded, err := guardIsRemoved(ctx)
	if err != nil || !guarded {
		return nil, err
	}
	if !dryRun {
		if err := os.WriteFile(sysctl.RouteLocalnet, []byte("0"), 0o644); err != nil {
			return nil, fmt.Errorf("set "+sysctl.RouteLocalnet+" to 0: %w", err)
		}
	}
	return []string{step}, nil
}

// guardIsRemoved reports whether KUBE-FIREWALL has the guard and is removed by this cleanup.
func guardIsRemoved(ctx context.Context) (bool, error) {
	for _, tool := range iptables.ToolsInUse(ctx, sdk.IPv4) {
		found, err := tool.SaveIf(ctx, func(id iptables.ID) bool { return id == firewall }, firewall.Table)
		if err != nil {
			return false, err
		}
		if len(found[firewall]) > 0 && firewallIsRemoved(found) {
			return true, nil
		}
	}
	return false, nil
}

func notGuard(r iptables.Rule) bool {
	return !strings.Contains(string(r), "block incoming localnet connections")
}

// leadsTo returns the first foreign chain, by name, that has a rule which leads to chain id.
func leadsTo(found iptables.Tables, id iptables.ID) (from iptables.ID, leads bool) {
	for _, at := range slices.SortedFunc(maps.Keys(found), iptables.ID.Compare) {
		to := func(r iptables.Rule) bool { return r.Target() == id.Chain }
		if at.Table == id.Table && !isOurs(at) && slices.ContainsFunc(found[at], to) {
			return at, true
		}
	}
	return iptables.ID{}, false
}
