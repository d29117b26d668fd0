// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
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
	var gone []string
	var places []masquerade.Place
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		for _, tool := range tools(ctx, family) {
			tool.Waiting, tool.Heard = env.Waiting, env.Step
			places = append(places, masquerade.At(tool))
			found, err := sweep(ctx, tool, l)
			gone = append(gone, found...)
			errs = append(errs, err)
		}
	}
	left, err := masquerade.Leave(ctx, env.Dir, mode, places, l, isOurs)
	gone = append(gone, left...)
	errs = append(errs, err)
	if l.KubeProxy {
		found, err := iptables.SweepKubeProxy(l.DryRun)
		gone = append(gone, found...)
		errs = append(errs, err)
	}
	closed, err := closeAccounts(l.DryRun)
	gone = append(gone, closed...)
	errs = append(errs, err)
	gone = append(gone, given...)
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
	if l == (sdk.Leftovers{}) {
		gone, err := sweepBy(ctx, tool, l, func(ctx context.Context, table string) (iptables.Tables, error) {
			return tool.OutlineFree(ctx, table, isOurs)
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
	var all ruleset.Plan
	for _, table := range tables {
		if table == "mangle" && !l.KubeProxy {
			continue // only it has something there: a canary
		}
		found, err := read(ctx, table)
		if err != nil {
			return nil, err
		}
		b, kept := leftovers(table, found, l.KubeProxy)
		if b.Empty() {
			continue
		}
		all = append(all, b)
		for _, step := range slices.Concat(b.Steps(), kept) {
			gone = append(gone, fmt.Sprintf("%s: %s", tool.Prefix, step))
		}
	}
	if l.DryRun {
		return gone, nil
	}
	return gone, all.Write(ctx, tool, rank, 0, func(ruleset.Plan) {})
}
