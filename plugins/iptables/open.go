// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// openFamilies finds the programs of each family that this node has.
func openFamilies(ctx context.Context, o options, env frame.Env) ([]*family, error) {
	backend := iptables.Backend(o.Backend)
	if o.Backend == "auto" {
		use, err := iptables.Look(ctx, sdk.IPv4)
		if err != nil {
			return nil, err
		}
		if use.Mixed() {
			env.Log.Warn("rules of Kubernetes stand in both backends", "nft", use.Kube[iptables.NFT], "legacy", use.Kube[iptables.Legacy])
		}
		backend = use.Choose()
	}
	losses := &losses{log: env.Log, nft: backend == iptables.NFT}
	var families []*family
	var errs []error
	for _, of := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tool, err := iptables.Open(ctx, of, backend)
		if err == nil {
			err = tool.Reach()
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		tool.Waiting, tool.Heard, tool.Started, tool.Ended = env.Waiting, env.Step, losses.started, losses.ended
		f := newFamily(tool, o, losses, env.Log)
		f.rules.Masquerade = &masquerade.Hold{Book: env.Ledger, Holder: mode, Place: masquerade.At(f.rules.Tool)}
		families = append(families, f)
	}
	if len(families) == 0 {
		return nil, errors.Join(errs...)
	}
	return families, nil
}
