// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"time"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// Sync applies an update. After a Full it removes imported affinity entries of Services that do not exist.
func (p *plugin) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	r, err := p.Dataplane.Sync(ctx, u)
	if err != nil || !u.Full {
		return r, err
	}
	return r, p.Do(ctx, func(map[sdk.Name]sdk.Service) error { clear(p.affinity); return nil })
}

// ExportAffinity calls tell with the endpoint of each client.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	var all []sdk.AffinityEntry
	err := p.Do(ctx, func(map[sdk.Name]sdk.Service) error {
		now := time.Now()
		for _, f := range p.way.families {
			for _, s := range f.core().services {
				all = append(all, s.ExportAffinity(now)...)
			}
		}
		return nil
	})
	for _, e := range all {
		if err = errors.Join(ctx.Err(), tell(e)); err != nil {
			break
		}
	}
	return err
}

// ImportAffinity adds entries of another dataplane. It keeps those of unknown Services until the next Full: a process
// without the writer's lock gets no update before it replaces another one.
func (p *plugin) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	return p.Do(ctx, func(map[sdk.Name]sdk.Service) error {
		now := time.Now()
		for _, e := range entries {
			if s := p.service(e.Name); s != nil {
				s.ImportAffinity([]sdk.AffinityEntry{e}, now)
			} else if len(p.affinity[e.Name]) < relay.MaxAffinity {
				p.affinity[e.Name] = append(p.affinity[e.Name], e)
			}
		}
		return nil
	})
}

// service returns a Service as connections see it, or nil.
func (p *plugin) service(name sdk.Name) *relay.Service {
	for _, f := range p.way.families {
		if f.Serves(name.Family) {
			return f.core().services[name].Service
		}
	}
	return nil
}
