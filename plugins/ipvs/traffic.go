// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
)

// Count tells what the virtual services of each Service have had: the kernel counts that of each. As
// Inspect does it opens a way of its own to the kernel, so that no call waits while it lists them.
func (p *plugin) Count(ctx context.Context, tell func(sdk.Traffic) error) error {
	owners := make(map[serviceKey]sdk.Name)
	err := p.Beside(ctx, func() error {
		if p.session == nil {
			return nil
		}
		for _, f := range p.session.families {
			for at := range f.objects.specs {
				if c, ok := f.objects.owner(at); ok {
					owners[at] = c.name
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	k, err := p.machine.open()
	if err != nil {
		return err
	}
	defer k.close()
	counts, err := k.Counters()
	if err != nil {
		return err
	}
	parts := make(map[sdk.Name]map[string]frame.Count)
	for at, name := range owners {
		n, there := counts[at]
		if !there {
			continue
		}
		if parts[name] == nil {
			parts[name] = make(map[string]frame.Count)
		}
		parts[name][at.String()] = n
	}
	return errors.Join(p.counts.Tell(parts, true, tell), ctx.Err())
}
