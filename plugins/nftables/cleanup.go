// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// sweep restores kernel parameters and removes the tables of both families, and with l.KubeProxy those of
// kube-proxy. Parameters come first: the guard must be in place while the kernel routes 127.0.0.0/8.
func (p *plugin) sweep(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	given, err := env.GiveBack(l)
	errs := []error{err}
	var gone []string
	open := map[sdk.Family]*nfTable{sdk.IPv4: {ip: ipOf(sdk.IPv4)}, sdk.IPv6: {ip: ipOf(sdk.IPv6)}}
	p.mu.Lock()
	for _, f := range p.families {
		open[f.Of] = f.kernel
		if !l.DryRun {
			f.marks.Stop()
		}
	}
	p.mu.Unlock()
	for _, of := range families {
		there, err := open[of].remove(ctx, l.DryRun)
		if err != nil {
			errs = append(errs, fmt.Errorf("remove table %s %s: %w", ipOf(of).nftName(), table, err))
		} else if there {
			gone = append(gone, fmt.Sprintf("nft: remove table %s %s", ipOf(of).nftName(), table))
		}
	}
	if l.KubeProxy {
		theirs, err := iptables.SweepKubeProxy(ctx, l.DryRun)
		gone, errs = append(gone, theirs...), append(errs, err)
	}
	left, err := masquerade.LeaveAll(ctx, env.Dir, mode, l)
	return slices.Concat(gone, left, given), errors.Join(append(errs, err)...)
}
