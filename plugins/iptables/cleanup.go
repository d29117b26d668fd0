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

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Cleanup takes out every jump to a chain of ours, then the chains, in both
// families and both backends, and gives the kernel's parameters back. The names
// are kube-proxy's too, so its rules go with them; what only kube-proxy made goes
// when asked for.
func (p *plugin) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	if err := p.turn.Take(ctx); err != nil {
		return nil, err
	}
	defer p.turn.Give()
	if !l.DryRun {
		if err := p.warnWriter(); err != nil {
			return nil, err
		}
	}
	// Parameters first: while the kernel routes 127.0.0.0/8, the guard must stand.
	given, err := duty.GiveBack(p.dir, mode, l)
	errs := []error{err}
	if l.KubeProxy {
		closed, err := unroute(ctx, l.DryRun, given)
		if err != nil {
			return given, errors.Join(append(errs, err)...) // and kube-proxy's guard stands
		}
		given = append(given, closed...)
	}
	var gone []string
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		for _, tool := range tools(ctx, family) {
			tool.Waiting, tool.Heard = p.status.Waiting, p.status.Step
			found, err := sweep(ctx, tool, l)
			gone = append(gone, found...)
			errs = append(errs, err)
		}
	}
	if l.KubeProxy {
		found, err := iptables.SweepKubeProxy(l.DryRun)
		gone = append(gone, found...)
		errs = append(errs, err)
	}
	closed, err := closeAccounts(l.DryRun)
	gone = append(gone, closed...)
	errs = append(errs, err)
	gone = append(gone, given...)
	if !l.DryRun {
		for _, s := range p.sides {
			s.known, s.asked, s.book.whole = false, false, false
		}
		p.role = 0
	}
	return gone, errors.Join(errs...)
}

// tools are the programs of each backend in which family has rules.
func tools(ctx context.Context, family sdk.Family) []iptables.Tool {
	var all []iptables.Tool
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		if !iptables.InUse(family, backend) {
			continue
		}
		if t, err := iptables.Open(ctx, family, backend); err == nil {
			all = append(all, t)
		}
	}
	return all
}

// sweep removes, or only names, what is ours in one family and backend.
func sweep(ctx context.Context, tool iptables.Tool, l sdk.Leftovers) ([]string, error) {
	if tool.Backend == iptables.NFT && l == (sdk.Leftovers{}) {
		gone, err := sweepBy(ctx, tool, l, func(ctx context.Context, table string) (iptables.Tables, error) {
			return tool.Outline(ctx, table, func(id iptables.ID) bool { return isOurs(id.Chain) })
		})
		if err == nil || ctx.Err() != nil {
			return gone, err
		} // else there are jumps where nobody would look for them
	}
	return sweepBy(ctx, tool, l, func(ctx context.Context, table string) (iptables.Tables, error) {
		return tool.Save(ctx, table)
	})
}

// sweepBy is sweep, of what read finds in each table.
func sweepBy(ctx context.Context, tool iptables.Tool, l sdk.Leftovers, read func(context.Context, string) (iptables.Tables, error)) ([]string, error) {
	tables, err := tool.KubeTables(ctx) // where no chain of ours is, no rule leads to one
	if err != nil {
		return nil, err
	}
	var gone []string
	var all plan
	for _, table := range tables {
		if table == "mangle" && !l.KubeProxy {
			continue // only it has something there: a canary
		}
		found, err := read(ctx, table)
		if err != nil {
			return nil, err
		}
		b := leftovers(table, found, l.KubeProxy)
		if b.Empty() {
			continue
		}
		all = append(all, b)
		for _, step := range b.Steps() {
			gone = append(gone, fmt.Sprintf("%s: %s", tool.Prefix, step))
		}
	}
	if l.DryRun {
		return gone, nil
	}
	return gone, newSide(tool).write(ctx, all)
}

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
