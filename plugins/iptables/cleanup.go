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

// sweepAll removes our jumps and chains in both families and both backends, and restores kernel parameters.
// kube-proxy's rules have the same chain names and are removed, too. Its canaries are removed if l.KubeProxy is
// set. KUBE-FIREWALL, with kube-proxy's guard of 127.0.0.0/8, and KUBE-MARK-DROP stay, because the kubelet uses
// them, too.
func sweepAll(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	// Restore parameters first: KUBE-LOCALNET-GUARD must be in place while the kernel routes 127.0.0.0/8.
	given, failed := env.GiveBack(l)
	gone, err := sweepRules(l.KubeProxy).All(ctx, l, env)
	closed, failedToClose := closeAccounts(ctx, l.DryRun)
	return slices.Concat(gone, closed, given), errors.Join(failed, err, failedToClose)
}

// sweepRules returns the rules to remove.
func sweepRules(kubeProxy bool) sweep.Rules {
	ours := func(id iptables.ID) bool { return isOurs(id) && (id.Chain != canary || kubeProxy) }
	return sweep.Rules{
		Mode: mode, Ours: ours, Rank: rank, Tables: []string{"filter", "mangle", "nat"}, // in mangle there is only kube-proxy's canary
		Leftovers: func(table string, found iptables.Tables) (iptables.Block, []string) {
			return found.Leftovers(table, ours)
		},
	}
}
