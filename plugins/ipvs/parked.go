// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// Parked is what cannot be seen in the kernel while no real has weight. A role other than
// Active leaves out virtual servers that at an address of the node would catch packets; and
// reals that have gone, and still have connections, look like those that are wanted.
// Inspect tells what would be there if the role were Active.
type parked struct {
	mu    sync.Mutex // guards reals: Inspect runs beside the calls that write
	reals map[server][]netip.AddrPort
}

// park notes of the servers that were touched what the kernel does not show now.
func (b *book) park(p *parked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range b.touched.servers {
		c, wanted := b.places[at].first()
		_, _, should := b.server(at)
		if wanted && b.role != sdk.Active && (!should || b.draining(at)) {
			p.reals[at] = c.place.reals
		} else {
			delete(p.reals, at)
		}
	}
}

// at are the reals that are wanted of a virtual server which is left out, or has others too.
func (p *parked) at(at server) ([]netip.AddrPort, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reals, ok := p.reals[at]
	return slices.Clone(reals), ok
}
