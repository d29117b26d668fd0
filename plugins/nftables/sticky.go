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

// ExportAffinity tells which clients the kernel keeps at an endpoint, and for how long.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	each := func(list nftnl.Listing, f *family, name sdk.Name, w wanted, policy sdk.Policy) error {
		clients, err := list.Elements(ctx, w.own(name).of("sticky", policy))
		if err != nil {
			return fmt.Errorf("read which clients keep to endpoints of %s: %w", name, err)
		}
		for _, e := range clients {
			client, ok := netip.AddrFromSlice([]byte(e.Key))
			if !ok {
				continue
			}
			entry := sdk.AffinityEntry{Name: name, Client: client, Endpoint: f.destination(e.Data), Left: e.Left}
			if err := tell(entry); err != nil {
				return err
			}
		}
		return nil
	}
	return p.eachList(ctx, each)
}

// ImportAffinity has the kernel keep clients at their endpoints: in each list that has them.
func (p *plugin) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	of := make(map[sdk.Name][]sdk.AffinityEntry)
	for _, e := range entries {
		of[e.Name] = append(of[e.Name], e)
	}
	return p.eachList(ctx, func(_ nftnl.Listing, f *family, name sdk.Name, w wanted, policy sdk.Policy) error {
		if f.conn == nil {
			return fmt.Errorf("keep clients at endpoints of %s: another process is the writer", name)
		}
		b := nftnl.NewBatch(f.nft(), table, 0)
		for _, e := range of[name] {
			if left := min(e.Left, w.affinity); left > 0 && slices.Contains(w.lists[policy], e.Endpoint) {
				b.Add(w.own(name).of("sticky", policy), nftnl.Element{
					Key: string(e.Client.AsSlice()), Data: destination(e.Endpoint), Left: left,
				})
			}
		}
		if b.Len() == 0 {
			return nil
		}
		if err := f.conn.Send(ctx, b); err != nil {
			return fmt.Errorf("keep %d clients at endpoints of %s: %w", len(of[name]), name, err)
		}
		f.commits.n.Add(1)
		return nil
	})
}

// eachList calls f for each list of each Service with affinity that the kernel has.
func (p *plugin) eachList(
	ctx context.Context, call func(nftnl.Listing, *family, sdk.Name, wanted, sdk.Policy) error,
) error {
	return p.Do(ctx, func(map[sdk.Name]sdk.Service) error {
		for _, f := range p.families {
			conn, done, err := f.reader()
			if err != nil {
				return err
			}
			defer done()
			for name, w := range f.have.services {
				if w.affinity <= 0 {
					continue
				}
				for _, policy := range w.policies() {
					if err := call(conn.List(f.nft(), table), f, name, w, policy); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}
