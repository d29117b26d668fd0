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

// sweepAll takes out every jump to a chain of ours, then the chains, in both families and
// both backends, and gives the kernel's parameters back. The names are kube-proxy's too, so
// its rules go with them; what only kube-proxy made goes when asked for.
func sweepAll(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	// Parameters first: while the kernel routes 127.0.0.0/8, the guard must stand.
	given, err := env.GiveBack(l)
	errs := []error{err}
	if l.KubeProxy {
		closed, err := unroute(ctx, l.DryRun, given)
		if err != nil {
			return given, errors.Join(append(errs, err)...) // and kube-proxy's guard stands
		}
		given = append(given, closed...)
	}
	gone, err := swept(l.KubeProxy).All(ctx, l, env)
	errs = append(errs, err)
	closed, err := closeAccounts(l.DryRun)
	gone = append(gone, closed...)
	errs = append(errs, err)
	gone = append(gone, given...)
	return gone, errors.Join(errs...)
}

// swept are the rules that go.
func swept(kubeProxy bool) sweep.Rules {
	return sweep.Rules{
		Mode: mode, Ours: isOurs, Rank: rank,
		Tables: func(ctx context.Context, tool iptables.Tool) ([]string, error) {
			tables, err := tool.KubeTables(ctx) // where no chain of ours is, no rule leads to one
			// Only kube-proxy has something in mangle: a canary.
			return slices.DeleteFunc(tables, func(table string) bool { return table == "mangle" && !kubeProxy }), err
		},
		Leftovers: func(table string, found iptables.Tables) (iptables.Block, []string) {
			return leftovers(table, found, kubeProxy)
		},
	}
}

// leftovers is the block that removes what is ours from one table, and what stays because
// foreign rules lead to it.
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

// What kube-proxy and the kubelet both make: the guard of 127.0.0.0/8 in KUBE-FIREWALL, and
// then the chain, goes if nothing else stands in it; KUBE-MARK-DROP goes if nothing leads to
// it. A kubelet that wants them makes them again within a minute.
var (
	firewall = filter("KUBE-FIREWALL")
	markDrop = nat("KUBE-MARK-DROP")
)

// firewallIsRemoved reports whether KUBE-FIREWALL has nothing but the guard, and no foreign rule
// leads to it.
func firewallIsRemoved(found iptables.Tables) bool {
	_, held := found.Held(func(id iptables.ID) bool { return id == firewall })[firewall]
	return !held && !slices.ContainsFunc(found[firewall], notGuard)
}

// unroute has the kernel route 127.0.0.0/8 no more, if kube-proxy had it do so: its
// guard tells, and goes now. It adds nothing to what was given back already.
func unroute(ctx context.Context, dryRun bool, given []string) ([]string, error) {
	step := sysctl.RouteLocalnet + " back to 0"
	value, err := os.ReadFile(sysctl.RouteLocalnet)
	if err != nil || strings.TrimSpace(string(value)) == "0" || slices.Contains(given, step) {
		return nil, nil // there is no IPv4, or nothing to do
	}
	guarded, err := guardIsRemoved(ctx)
	if err != nil || !guarded {
		return nil, err
	}
	if !dryRun {
		if err := os.WriteFile(sysctl.RouteLocalnet, []byte("0"), 0o644); err != nil {
			return nil, fmt.Errorf("have the kernel route 127.0.0.0/8 no more: %w", err)
		}
	}
	return []string{step}, nil
}

// guardIsRemoved reports whether the guard stands in a KUBE-FIREWALL that goes.
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

// leadsTo is the first chain, but for ours, with a rule that leads to chain id.
func leadsTo(found iptables.Tables, id iptables.ID) (from iptables.ID, leads bool) {
	for _, at := range slices.SortedFunc(maps.Keys(found), iptables.ID.Compare) {
		to := func(r iptables.Rule) bool { return r.Target() == id.Chain }
		if at.Table == id.Table && !isOurs(at) && slices.ContainsFunc(found[at], to) {
			return at, true
		}
	}
	return iptables.ID{}, false
}
