// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// open finds the programs of each family that this node has.
func (p *plugin) open(ctx context.Context, o options) ([]*side, error) {
	backend := iptables.Backend(o.Backend)
	if o.Backend == "auto" {
		use, err := iptables.Look(ctx, sdk.IPv4)
		if err != nil {
			return nil, err
		}
		if use.Mixed() {
			p.log.Warn("rules of Kubernetes stand in both backends", "nft", use.Kube[iptables.NFT], "legacy", use.Kube[iptables.Legacy])
		}
		backend = use.Choose()
	}
	var sides []*side
	var errs []error
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tool, err := iptables.Open(ctx, family, backend)
		if err == nil {
			err = tool.Reach()
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		tool.Waiting, tool.Heard, tool.Started, tool.Ended = p.status.Waiting, p.status.Step, p.writes, p.wrote
		sides = append(sides, newSide(tool))
	}
	if len(sides) == 0 {
		return nil, errors.Join(errs...)
	}
	return sides, nil
}

// use makes sides those that are written to.
func (p *plugin) use(sides []*side) {
	p.sides = sides
	p.hold()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tools = nil
	for _, s := range sides {
		p.tools = append(p.tools, s.Tool)
	}
}

// programs are those of each family that is served.
func (p *plugin) programs() []iptables.Tool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tools)
}

// narrowed is the Description without the family that the node lacks.
func narrowed(sides []*side) sdk.Description {
	return duty.Narrow(Description, func(f sdk.Family) bool {
		return slices.ContainsFunc(sides, func(s *side) bool { return s.Family() == f })
	})
}
