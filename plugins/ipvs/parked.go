// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// Parked are the virtual servers that Standby leaves out, because at an address that
// the node has they would catch packets. Inspect tells of them too: they are there from
// the moment that the role is Active.
type parked struct {
	mu    sync.Mutex // guards reals: Inspect runs beside the calls that write
	reals map[server][]netip.AddrPort
}

// park notes which of the servers that were touched are left out now.
func (b *book) park(p *parked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range b.touched.servers {
		c, wanted := b.places[at].first()
		_, _, there := b.server(at)
		if wanted && !there && b.role == sdk.Standby {
			p.reals[at] = c.place.reals
		} else {
			delete(p.reals, at)
		}
	}
}

// at are the reals of a virtual server that is left out.
func (p *parked) at(at server) ([]netip.AddrPort, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reals, ok := p.reals[at]
	return slices.Clone(reals), ok
}
