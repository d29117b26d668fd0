// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// A Service with too many endpoints is refused, keeps what served it, also in a process that
// begins anew, and does not keep out the others.
func TestKernelRefusesTooManyEndpoints(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := several(5)
		s.Services = append(s.Services, large(endpoints(3)))
		huge := large(endpoints(Ceiling + 1))
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)

		s.Services[3].Cluster = []sdk.Endpoint{{Addr: netip.AddrPortFrom(v4(10<<24|9<<16|9<<8|1), 8080)}}
		k.refuses(p, sdk.Update{From: 1, To: 2, Set: []sdk.Service{huge, s.Services[3]}}, huge.Name)
		k.want(s, sdk.Active)

		p.die()
		p = k.start()
		u := s.Update(1)
		u.Set[5] = huge
		k.refuses(p, u, huge.Name)
		k.want(s, sdk.Active)
	})
}

// refuses expects an update to be taken but for one Service.
func (k kernel) refuses(p *plugin, u sdk.Update, name sdk.Name) {
	k.Helper()
	result, err := p.Sync(k.Context(), u)
	if err != nil || len(result.Failed) != 1 || result.Failed[0].Name != name || !errors.As(result.Failed[0].Err, new(*sdk.Refusal)) {
		k.Fatalf("failed: %v, %v; want that %s alone is refused", result.Failed, err, name)
	}
}

// One endpoint of many that goes has few rules written.
func TestKernelOneEndpointOfMany(t *testing.T) {
	const many = 12_000
	onKernel(t, func(k kernel) {
		s := several(5)
		s.Services = append(s.Services, large(endpoints(many)))
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		huge := &s.Services[5]
		huge.Cluster = slices.Delete(slices.Clone(huge.Cluster), 77, 78)
		k.sync(p, sdk.Update{From: 1, To: 2, Set: []sdk.Service{*huge}})
		if written, most := p.families[0].rules.Stats.Last["nat"], int(10*math.Sqrt(many)); written == 0 || written > most {
			k.Errorf("of one endpoint that went %d rules are written, and may be %d", written, most)
		}
		k.want(s, sdk.Active)
	})
}
