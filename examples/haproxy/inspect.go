// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// Inspect names what HAProxy serves: frontends whose socket it listens on, by the kernel's word, and
// the endpoints that it says it has. Where none runs and the role is not Active it names what would be
// served.
func (p *plugin) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	all, err := p.inspect(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := errors.Join(ctx.Err(), tell(s)); err != nil {
			return err
		}
	}
	return nil
}

func (p *plugin) inspect(ctx context.Context) (all []sdk.Served, err error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	if !p.session {
		return nil, nil
	}
	if err := p.look(ctx); err != nil {
		return nil, err
	}
	if p.current == nil {
		if p.updated && p.lock != nil && p.role != sdk.Active {
			for _, s := range p.wanted {
				all = append(all, s.served(func(netip.AddrPort) bool { return true })...)
			}
		}
		return all, nil
	}
	servers, err := p.current.api().servers(ctx, "")
	if err != nil {
		return nil, err
	}
	listening := make(map[netip.AddrPort]bool)
	for _, s := range sockets(p.current.process.PID()) {
		listening[s.local] = listening[s.local] || s.state == stateListen
	}
	for n, r := range p.have {
		now := r.section.with(servers[sectionName(n)])
		all = append(all, now.served(func(at netip.AddrPort) bool { return listening[at] })...)
	}
	return all, nil
}

// served returns those frontends that are there.
func (s section) served(there func(netip.AddrPort) bool) (all []sdk.Served) {
	for _, f := range s.Frontends {
		if there(f.Addr) {
			all = append(all, sdk.Served{Name: s.Name, Frontend: f, Endpoints: s.Endpoints})
		}
	}
	return all
}
