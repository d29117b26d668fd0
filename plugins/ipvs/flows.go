// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// forget ends UDP flows that the changes left leading nowhere.
func (p *plugin) forget(c sdk.Changes, failed []sdk.Failure) error {
	if p.lock == nil || p.role != sdk.Active {
		return nil
	}
	services := duty.UDP(p.state, c, failed)
	if len(services) == 0 {
		return nil
	}
	for _, s := range p.sides {
		takes := func(a netip.Addr) bool { return slices.Contains(s.book.ground.addrs, a) }
		began := time.Now()
		n, err := p.edges.forget(s.book.ground.family, conntrack.Serving(s.book.ground.family, services, takes).Telling(p.status.Step))
		s.rounds.Count(time.Since(began), n)
		if err != nil {
			return err
		}
		if n > 0 {
			p.log.Info("forgot udp flows", "family", s.book.ground.family, "flows", n)
		}
	}
	return nil
}
