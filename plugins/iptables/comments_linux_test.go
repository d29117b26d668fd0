// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// says counts the rules of IPv4 whose comment names an endpoint.
func (k kernel) says() (n int) {
	k.Helper()
	for _, rules := range k.tables(sdk.IPv4) {
		for _, r := range rules {
			if strings.Contains(r.Comment(), " -> ") {
				n++
			}
		}
	}
	return n
}

// A Service that crosses the limit of commented Services costs no more rules than its own, and
// rules with and without comments are read back.
func TestKernelCommentsOfManyServices(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := several(fewServices + 1)
		last := s.Services[fewServices]
		before := s
		before.Services = s.Services[:fewServices]
		p := k.start()
		k.sync(p, before.Update(1))
		rules := p.families[0].rules
		if n := k.says(); n != fewServices {
			k.Fatalf("of %d Services %d rules say where they lead", fewServices, n)
		}
		k.sync(p, sdk.Update{From: 1, To: 2, Set: []sdk.Service{last}})
		if n, written := k.says(), rules.Stats.Last["nat"]; n != fewServices || written > 20 {
			k.Errorf("one more: %d rules say where they lead, and %d were written", n, written)
		}
		moved := s.Services[7]
		moved.Cluster = []sdk.Endpoint{{Addr: netip.MustParseAddrPort("10.180.7.7:8080")}}
		k.sync(p, sdk.Update{From: 2, To: 3, Set: []sdk.Service{moved}})
		if n, written := k.says(), rules.Stats.Last["nat"]; n != fewServices-1 || written > 20 {
			k.Errorf("another endpoint: %d rules say where they lead, and %d were written", n, written)
		}
		found := served(sdk.IPv4, k.tables(sdk.IPv4))
		for _, svc := range []sdk.Service{moved, last, s.Services[8]} {
			if !slices.ContainsFunc(found, func(f sdk.Served) bool {
				return f.Name == svc.Name && f.Frontend.Kind == sdk.ClusterIP && slices.Equal(f.Endpoints, []netip.AddrPort{svc.Cluster[0].Addr})
			}) {
				k.Errorf("%s is not read back", iptables.Label(svc.Name))
			}
		}
	})
}
