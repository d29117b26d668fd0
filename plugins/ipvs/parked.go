// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// parked is what cannot be seen in the kernel while no destination has weight. A role other than
// Active leaves out virtual services that at an address of the node would catch packets; and
// destinations that have gone, and still have connections, look like those that are wanted.
// Inspect tells what would be there if the role were Active.
type parked struct {
	mu    sync.Mutex // guards destinations: Inspect runs beside the calls that write
	dests map[serviceKey][]netip.AddrPort
}

// park notes of the servers that were touched what the kernel does not show now.
func (o *objects) park(p *parked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range o.touched.services {
		c, wanted := o.owner(at)
		_, _, should := o.service(at)
		if wanted && o.role != sdk.Active && (!should || o.draining(at)) {
			p.dests[at] = c.value.dests
		} else {
			delete(p.dests, at)
		}
	}
}

// at are the destinations that are wanted of a virtual service which is left out, or has others too.
func (p *parked) at(at serviceKey) ([]netip.AddrPort, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	dests, ok := p.dests[at]
	return slices.Clone(dests), ok
}
