// SPDX-License-Identifier: Apache-2.0

// Package sweep removes the iptables rules of a dataplane from a node, whichever process wrote them: in both IP
// families and both backends. It also releases the chains that all dataplanes share and, if asked for, removes
// what kube-proxy left. It never removes a chain to which a foreign rule leads. Start with Rules.All.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// Rules describe which rules belong to a dataplane.
type Rules struct {
	Mode string
	Ours func(iptables.ID) bool
	Rank func(iptables.Chain) int // as in rules.Config

	// Tables may have such rules. They are swept in this order.
	Tables []string

	// Leftovers returns the block that removes the rules from a table, and descriptions of what stays. found
	// has the chains of all Tables that have one of Ours or, with Leftovers.KubeProxy, any of Kubernetes.
	Leftovers func(table string, found iptables.Tables) (removed iptables.Block, kept []string)
}

// All removes (with DryRun: only names) all of these rules, and releases the shared chains. With KubeProxy it
// also removes the tables of kube-proxy's nftables mode.
func (r Rules) All(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	gone, err := r.Of(ctx, l, env, iptables.ToolsInUse)
	if !l.KubeProxy {
		return gone, err
	}
	tables, failed := iptables.SweepKubeProxy(ctx, l.DryRun)
	return append(gone, tables...), errors.Join(err, failed)
}

// Of is All for the given tools of each family, without kube-proxy's nftables tables.
func (r Rules) Of(ctx context.Context, l sdk.Leftovers, env frame.Env, tools func(context.Context, sdk.Family) []iptables.Tool) ([]string, error) {
	var gone []string
	var errs []error
	note := func(some []string, err error) {
		gone, errs = append(gone, some...), append(errs, err)
	}
	var all []iptables.Tool
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		for _, tool := range tools(ctx, family) {
			tool.Waiting, tool.Heard = env.Waiting, env.Step
			all = append(all, tool)
			note(r.each(ctx, tool, l))
		}
	}
	note(masquerade.Leave(ctx, env.Dir, r.Mode, all, l, r.Ours))
	return gone, errors.Join(errs...)
}

// Elsewhere removes the rules written by tools of a backend that the dataplane no longer uses. It also removes
// the shared chains there if no other dataplane holds them.
func (r Rules) Elsewhere(ctx context.Context, tools []iptables.Tool, env frame.Env) ([]string, error) {
	var gone []string
	var errs []error
	for _, tool := range tools {
		some, err := r.each(ctx, tool, sdk.Leftovers{})
		gone, errs = append(gone, some...), append(errs, err)
	}
	some, err := masquerade.Move(ctx, env.Dir, r.Mode, tools, r.Ours)
	return append(gone, some...), errors.Join(append(errs, err)...)
}

// each is All for one family and backend.
func (r Rules) each(ctx context.Context, tool iptables.Tool, l sdk.Leftovers) ([]string, error) {
	mine := func(id iptables.ID) bool { // a table without such a chain has no rule that leads to one
		return r.Ours(id) || l.KubeProxy && strings.HasPrefix(id.Chain, "KUBE-")
	}
	found, err := tool.SaveIf(ctx, mine, r.Tables...)
	if err != nil {
		return nil, err
	}
	for id := range found {
		if why := found.Unsure(id); why != "" {
			return nil, errors.New(why)
		}
	}
	var gone []string
	var all iptables.Plan
	for _, table := range r.Tables {
		removed, kept := r.Leftovers(table, found)
		if removed.Empty() {
			continue
		}
		all = append(all, removed)
		for _, step := range slices.Concat(removed.Steps(), kept) {
			gone = append(gone, fmt.Sprintf("%s: %s", tool.Prefix, step))
		}
	}
	if l.DryRun {
		return gone, nil
	}
	return gone, all.Write(ctx, tool, r.Rank, 0)
}
