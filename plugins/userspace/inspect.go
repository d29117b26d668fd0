// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// Inspect tells the frontends whose every socket the kernel still has, and those
// that need none because callers are to be turned away. In Standby, which has no
// sockets, it tells what would be served.
func (d *Dataplane) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	for _, served := range d.served() {
		if err := errors.Join(ctx.Err(), tell(served)); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dataplane) served() []sdk.Served {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []sdk.Served
	for name, s := range d.services {
		svc := s.value.Load()
		for _, f := range svc.Frontends {
			if d.standsFor(name, f) {
				all = append(all, served(svc, f))
			}
		}
	}
	slices.SortFunc(all, func(a, b sdk.Served) int {
		if c := a.Name.Compare(b.Name); c != 0 {
			return c
		}
		return a.Frontend.Compare(b.Frontend)
	})
	return all
}

// standsFor reports whether all is there that f of a Service needs.
func (d *Dataplane) standsFor(name sdk.Name, f sdk.Frontend) bool {
	if d.role == sdk.Standby {
		return true
	}
	for _, c := range d.table.claims[name] {
		owner, _ := d.table.owner(c.place)
		if !c.frontend.Equal(f) || owner.name != name || owner.every() != c.every() || !c.listens {
			continue
		}
		s := d.sockets[c.place]
		if s == nil || !s.target().holder().holds(c) || s.stands() != nil {
			return false
		}
	}
	return d.role == sdk.Active
}

func served(svc *sdk.Service, f sdk.Frontend) sdk.Served {
	s := sdk.Served{Name: svc.Name, Frontend: f}
	for _, ep := range svc.Endpoints(f.Policy) {
		s.Endpoints = append(s.Endpoints, ep.Addr)
	}
	return s
}

// Stuck tells which client keeps which endpoint.
func (d *Dataplane) Stuck(ctx context.Context, tell func(sdk.Stick) error) error {
	for _, s := range d.sticky() {
		for _, k := range s.stuck(time.Now()) {
			if err := errors.Join(ctx.Err(), tell(k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sticky are the Services whose clients keep their endpoints.
func (d *Dataplane) sticky() []*service {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*service
	for _, s := range d.services {
		if s.value.Load().Affinity > 0 {
			all = append(all, s)
		}
	}
	return all
}

// Seed remembers clients of a dataplane before us, also of Services that only the
// next Full will name.
func (d *Dataplane) Seed(_ context.Context, sticks []sdk.Stick) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, k := range sticks {
		if s := d.services[k.Name]; s != nil {
			s.seed([]sdk.Stick{k}, now)
		} else if len(d.seeds[k.Name]) < maxSticks {
			d.seeds[k.Name] = append(d.seeds[k.Name], k)
		}
	}
	return nil
}
