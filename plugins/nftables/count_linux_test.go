// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// reported are the connections that the process reports, by endpoint.
func (p *plugin) reported() map[string]float64 {
	p.counted.at = time.Time{} // it is due
	all := make(map[string]float64)
	for _, s := range p.Report().Samples {
		if s.Name == "pointsman_nftables_connections_total" {
			all[s.Labels["ip_family"]+" "+s.Labels["protocol"]+" "+s.Labels["endpoint"]] = s.Value
		}
	}
	return all
}

// traffic is how many connections Services had, as the process says.
func (k kernel) traffic(p *plugin) (sum uint64) {
	k.Helper()
	err := p.Count(k.Context(), func(t sdk.Traffic) error {
		if t.Bytes || t.Since.IsZero() || t.Name.Service == "" {
			k.Errorf("counted: %+v", t)
		}
		sum += t.Connections
		return nil
	})
	if err != nil {
		k.Fatal(err)
	}
	return sum
}

// Each connection to an endpoint is counted once, whatever its caller, its frontend and the
// Service's affinity; none is that passes a Service by. The counts outlive the process. Where
// they are not asked for, nothing counts.
func TestKernelCountsConnections(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s := k.parsed(g, sticking)
		stage, err := g.Open(k.Context(), nil, s)
		if err != nil {
			k.Fatal(err)
		}
		defer stage.Close()
		node := netip.MustParseAddr("192.0.2.10")
		start := func(asked bool, update sdk.Update) *plugin {
			options := k.options()
			if asked {
				options = bytes.Replace(options, []byte("}"), []byte(`,"countConnections":true}`), 1)
			}
			p := New(k.dir).(*plugin)
			if _, err := p.Configure(k.Context(), sdk.Setup{Options: options}); err != nil {
				k.Fatal(err)
			}
			k.Cleanup(p.die)
			k.sync(p, update)
			k.role(p, sdk.Active)
			return p
		}
		p := start(true, s.Update(1))
		k.traffic(p) // what was counted before is no Service's
		want := make(map[string]float64)
		for range 3 {
			for _, packet := range s.Packets {
				a, err := stage.Send(k.Context(), packet)
				if err != nil || a.Verdict != sdk.Forward {
					k.Fatalf("%s: %s, %v", packet.Text, a, err)
				}
				want["IPv4 tcp "+a.Endpoint.String()]++
			}
			if err := k.dial(g.Node(), "tcp", node, s.Services[0].Cluster[0].Addr.String()); err != nil {
				k.Error(err) // past the Service
			}
		}
		wantCounts := func(p *plugin, when string) {
			k.Helper()
			got := p.reported()
			if len(got) != len(want) {
				k.Errorf("%s: %v, and there were %v", when, got, want)
			}
			for endpoint, n := range want {
				if got[endpoint] != n {
					k.Errorf("%s: %v, and there were %v", when, got, want)
				}
			}
		}
		wantCounts(p, "after the connections")
		sum := float64(0)
		for _, n := range want {
			sum += n
		}
		if got := k.traffic(p); float64(got) != sum {
			k.Errorf("of Services %d were counted, and there were %v", got, sum)
		}
		k.lists()
		p.die()
		p = start(true, s.Update(1))
		wantCounts(p, "after a restart")
		p.die()
		clear(want)
		p = start(false, s.Update(1))
		wantCounts(p, "where it is not asked for")
		var refusal *sdk.Refusal
		if err := p.Count(k.Context(), nil); !errors.As(err, &refusal) || refusal.Field != "options.countConnections" {
			k.Errorf("where it is not asked for, it says of Services: %v", err)
		}
		if text := k.nft("list", "table", "ip", table); strings.Contains(text, "chain count") {
			k.Errorf("where it is not asked for, there is\n%s", text)
		}
	})
}
