// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/sweep"
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
