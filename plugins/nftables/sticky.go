// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// ExportAffinity reports which clients the kernel keeps at an endpoint, and for how long.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	return p.eachSticky(ctx, func(f *family, _ sdk.Policy, kept []nftnl.Element) error {
		names := make(map[number]sdk.Name)
		for name, w := range f.Installed() {
			names[w.number] = name
		}
		for _, e := range kept {
			n := parseNumber(e.Key)
			client, ok := netip.AddrFromSlice([]byte(e.Key[len(n.key()):]))
			if name, known := names[n]; ok && known && n > 0 {
				entry := sdk.AffinityEntry{Name: name, Client: client, Endpoint: f.ReadDestination(e.Data), Left: e.Left}
				if err := tell(entry); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// ImportAffinity adds clients to each list that has their endpoint. A client that a list already has keeps its
// endpoint.
func (p *plugin) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	return p.eachSticky(ctx, func(f *family, policy sdk.Policy, kept []nftnl.Element) error {
		has := make(map[string]bool)
		for _, e := range kept {
			has[e.Key] = true
		}
		var come []nftnl.Element
		for _, e := range entries {
			w := f.Installed()[e.Name]
			key, left := w.number.key()+string(e.Client.AsSlice()), min(e.Left, w.affinity)
			if left > 0 && !has[key] && slices.Contains(w.lists[policy], e.Endpoint) {
				has[key] = true
				come = append(come, nftnl.Element{Key: key, Data: destination(e.Endpoint), Left: left})
			}
		}
		if err := f.kernel.add(ctx, forPolicy("sticky", policy), come); err != nil {
			return fmt.Errorf("add %d clients to their endpoints: %w", len(come), err)
		}
		return nil
	})
}

// eachSticky calls call with the clients that the kernel keeps, by family and policy.
func (p *plugin) eachSticky(ctx context.Context, call func(*family, sdk.Policy, []nftnl.Element) error) error {
	return p.Do(ctx, func(map[sdk.Name]sdk.Service) error {
		for _, f := range p.families {
			for _, policy := range both {
				kept, err := f.kernel.elements(ctx, forPolicy("sticky", policy))
				if err != nil {
					return fmt.Errorf("read the clients of endpoints: %w", err)
				}
				if err := call(f, policy, kept); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
