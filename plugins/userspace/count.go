// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// Count says what each Service has had since it came to be served: all of it passes through this process.
func (p *plugin) Count(ctx context.Context, tell func(sdk.Traffic) error) error {
	var all []sdk.Traffic
	err := p.Beside(ctx, func() error {
		for _, f := range p.way.families {
			for _, service := range f.core().services {
				had := service.Traffic()
				all = append(all, sdk.Traffic{
					Name: service.Name(), Since: had.Since, Connections: had.Connections,
					Bytes: true, BytesIn: had.BytesIn, BytesOut: had.BytesOut,
				})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b sdk.Traffic) int { return a.Name.Compare(b.Name) })
	for _, t := range all {
		if err := tell(t); err != nil {
			return err
		}
	}
	return nil
}
