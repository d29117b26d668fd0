// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftable"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// ExportAffinity tells which clients the kernel keeps at an endpoint, and for how long.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	return p.eachSticky(ctx, func(f *family, _ sdk.Policy, kept []nftnl.Element) error {
		names := make(map[number]sdk.Name)
		for name, w := range f.Have.Services {
			names[w.number] = name
		}
		for _, e := range kept {
			n := numberIn(e.Key)
			client, ok := netip.AddrFromSlice([]byte(e.Key[len(n.key()):]))
			if name, known := names[n]; ok && known && n > 0 {
				entry := sdk.AffinityEntry{Name: name, Client: client, Endpoint: f.destination(e.Data), Left: e.Left}
				if err := tell(entry); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// ImportAffinity has the kernel keep clients at their endpoints: in each list that has them. A
// client that is kept in a list stays where it is.
func (p *plugin) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	return p.eachSticky(ctx, func(f *family, policy sdk.Policy, kept []nftnl.Element) error {
		has := make(map[string]bool)
		for _, e := range kept {
			has[e.Key] = true
		}
		var come []nftnl.Element
		for _, e := range entries {
			w := f.Have.Services[e.Name]
			key, left := w.number.key()+string(e.Client.AsSlice()), min(e.Left, w.affinity)
			if left > 0 && !has[key] && slices.Contains(w.lists[policy], e.Endpoint) {
				has[key] = true
				come = append(come, nftnl.Element{Key: key, Data: destination(e.Endpoint), Left: left})
			}
		}
		for some := range slices.Chunk(come, nftable.Chunk) {
			if err := f.importSticky(ctx, forList("sticky", policy), some); err != nil {
				return fmt.Errorf("keep %d clients at endpoints: %w", len(come), err)
			}
		}
		return nil
	})
}

// importSticky adds clients to a list.
func (f *family) importSticky(ctx context.Context, set string, clients []nftnl.Element) error {
	if f.Conn == nil {
		return errors.New("another process is the writer")
	}
	b := nftnl.NewBatch(f.nft(), table, 0)
	for _, e := range clients {
		b.Add(set, e)
	}
	return f.Write(ctx, b)
}

// eachSticky calls f with the clients that the kernel keeps, by family and policy.
func (p *plugin) eachSticky(
	ctx context.Context, call func(*family, sdk.Policy, []nftnl.Element) error,
) error {
	return p.Do(ctx, func(map[sdk.Name]sdk.Service) error {
		for _, f := range p.families {
			conn, done, err := f.Reader()
			if err != nil {
				return err
			}
			defer done()
			for _, policy := range both {
				set := forList("sticky", policy)
				if !f.Have.Sets[set] {
					continue
				}
				kept, err := f.List(conn).Elements(ctx, set)
				if err != nil {
					return fmt.Errorf("read which clients keep to endpoints: %w", err)
				}
				if err := call(f, policy, kept); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
