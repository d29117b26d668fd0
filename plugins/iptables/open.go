// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
)

// openFamilies finds the programs of each family that this node has.
func openFamilies(ctx context.Context, o options, env frame.Env) ([]*family, error) {
	tools, err := iptables.OpenAll(ctx, o.Backend, env.Log)
	if err != nil {
		return nil, err
	}
	losses := &ruleset.Losses{Log: env.Log, Ours: isOurs}
	var families []*family
	for _, tool := range tools {
		tool.Waiting, tool.Heard, tool.Started, tool.Ended = env.Waiting, env.Step, losses.Started, losses.Ended
		f := newFamily(tool, o, losses, env.Log)
		f.rules.Masquerade = &masquerade.Hold{Ledger: env.Ledger, Holder: mode, Place: masquerade.At(f.rules.Tool)}
		families = append(families, f)
	}
	return families, nil
}
