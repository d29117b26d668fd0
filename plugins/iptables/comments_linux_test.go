// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// startWith is start with a value of the option comments.
func (k kernel) startWith(comments string) *plugin {
	k.Helper()
	p := New(k.dir).(*plugin)
	if _, err := p.Configure(k.Context(), sdk.Setup{Options: fmt.Appendf(nil, `{"backend":%q,"comments":%q}`, k.backend, comments)}); err != nil {
		k.Fatal(err)
	}
	k.Cleanup(p.die)
	return p
}

// says counts the rules of IPv4 that say what leads to an endpoint.
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

// A process whose option is auto writes nothing for a comment over what another one left,
// with comments or without. One that is told the form writes it.
func TestKernelCommentsAreLeftAlone(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := several(5)
		for _, life := range []struct {
			comments string
			says     int
			writes   bool
		}{{"auto", 5, true}, {"never", 0, true}, {"auto", 0, false}, {"always", 5, true}, {"auto", 5, false}, {"always", 5, false}} {
			p := k.startWith(life.comments)
			k.sync(p, s.Update(1))
			written := p.families[0].rules.Stats.Last["nat"]
			if n := k.says(); n != life.says || written > 0 != life.writes {
				k.Errorf("%s: %d rules say where they lead, and %d rules were written", life.comments, n, written)
			}
			p.families[0].rules.Audit(k.Context())
			if why := p.families[0].rules.Doubt(); why != "" {
				k.Errorf("%s: %s", life.comments, why)
			}
			p.die()
		}
	})
}

// What a Service more or less than the limit costs is that Service, and what a host asks
// for is read back from both forms.
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
