// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"time"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// Sync makes the sockets follow u. Clients of Services that a Full does not name are
// forgotten.
func (p *plugin) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	r, err := p.Dataplane.Sync(ctx, u)
	if err != nil || !u.Full {
		return r, err
	}
	return r, p.Do(ctx, func(map[sdk.Name]sdk.Service) error { clear(p.affinity); return nil })
}

// ExportAffinity tells which client keeps which endpoint.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	var all []*relay.Service
	err := p.Do(ctx, func(map[sdk.Name]sdk.Service) error {
		for _, f := range p.way.families {
			for _, s := range f.core().services {
				if s.Value().Affinity > 0 {
					all = append(all, s.Service)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, k := range s.ExportAffinity(time.Now()) {
			if err := errors.Join(ctx.Err(), tell(k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// ImportAffinity remembers clients of a dataplane before this one, also of Services that
// only the next Full will name.
func (p *plugin) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	return p.Do(ctx, func(map[sdk.Name]sdk.Service) error {
		now := time.Now()
		for _, k := range entries {
			if s := p.service(k.Name); s != nil {
				s.ImportAffinity([]sdk.AffinityEntry{k}, now)
			} else if len(p.affinity[k.Name]) < relay.MaxAffinity {
				p.affinity[k.Name] = append(p.affinity[k.Name], k)
			}
		}
		return nil
	})
}

// service is what connections to a Service see; nil: there are none.
func (p *plugin) service(name sdk.Name) *relay.Service {
	for _, f := range p.way.families {
		if f.Serves(name.Family) {
			return f.core().services[name].Service
		}
	}
	return nil
}
