// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// forget ends UDP flows that the changes left leading nowhere.
func (p *plugin) forget(c sdk.Changes, failed []sdk.Failure) error {
	if p.lock == nil || p.role != sdk.Active {
		return nil
	}
	services := p.udp(c, failed)
	if len(services) == 0 {
		return nil
	}
	for _, s := range p.sides {
		takes := func(a netip.Addr) bool { return slices.Contains(s.book.ground.addrs, a) }
		n, err := p.edges.forget(s.book.ground.family, conntrack.Serving(s.book.ground.family, services, takes))
		if err != nil {
			return err
		}
		s.forgot += n
		if n > 0 {
			p.log.Info("forgot udp flows", "family", s.book.ground.family, "flows", n)
		}
	}
	return nil
}

// udp are the UDP Services of changes, as they are now.
func (p *plugin) udp(c sdk.Changes, failed []sdk.Failure) []sdk.Service {
	services := make(map[sdk.Name]sdk.Service)
	for _, change := range c.Services {
		if change.After != nil && change.Name.Protocol == sdk.UDP {
			services[change.Name] = *change.After
		}
	}
	if c.Full {
		for name, svc := range p.state.Services {
			if name.Protocol == sdk.UDP {
				services[name] = svc
			}
		}
	}
	for _, f := range failed {
		delete(services, f.Name)
	}
	return slices.Collect(maps.Values(services))
}
