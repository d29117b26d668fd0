// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"iter"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// Count tells how many connections Services have had, with countConnections: the kernel counts them by
// endpoint. A Service that shares an endpoint with another is left out, for it is not known whose
// connections those are.
func (p *plugin) Count(ctx context.Context, tell func(sdk.Traffic) error) error {
	parts := make(map[sdk.Name]map[string]frame.Count)
	err := p.each(func(f *family, conn *nftnl.Conn) error {
		if !f.options.CountConnections {
			return &sdk.Refusal{Field: "options.countConnections", Why: "it is false, and then nothing counts connections", Try: "true"}
		}
		seen, err := f.Read(ctx, conn)
		if err != nil {
			return err
		}
		counts, err := f.counts(ctx, conn)
		if err != nil {
			return err
		}
		for name := range seen.Services {
			parts[name] = make(map[string]frame.Count) // also of one without endpoints: it keeps what it had
		}
		frame.Divide(parts, endpoints(seen.Services), counts)
		return nil
	})
	if err != nil {
		return err
	}
	return p.traffic.Tell(parts, false, tell)
}

// endpoints are all those of Services.
func endpoints(services map[sdk.Name]wanted) iter.Seq2[sdk.Name, netip.AddrPort] {
	return func(yield func(sdk.Name, netip.AddrPort) bool) {
		for name, w := range services {
			for _, addr := range slices.Concat(w.lists[:]...) {
				if !yield(name, addr) {
					return
				}
			}
		}
	}
}
