// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/field"
)

const everyPart = `Frontends in each index, and affinity.
-- node --
addresses 192.0.2.10 2001:db8::10
-- services --
ns1/web:http tcp
  cluster-ip    172.30.0.41:80
  node-port     30080 local
  load-balancer 198.51.100.1:80 local
  affinity      3h
  endpoint      10.180.0.1:8080 here
  endpoint      10.180.1.1:8080
-- packets --
198.18.0.7 > 192.0.2.10:30080 = 10.180.0.1:8080
`

// On a node without Services the table is small. The sets and chains that a Service needs are created with the first
// such Service, in one batch with its elements. When no Service needs them any more, the next process removes them.
func TestKernelPartsComeAndGo(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, everyPart)
		empty := sdk.Update{Full: true, To: 1, Node: &s.Node}
		next := func(p *plugin) *plugin {
			if p != nil {
				p.die()
			}
			p = k.start()
			k.sync(p, empty)
			k.role(p, sdk.Active)
			return p
		}
		p := next(nil)
		few := k.text()
		if n := strings.Count(k.nft("list", "table", "ip", table), "\n"); n > 250 {
			k.Errorf("without a Service nft lists %d lines", n)
		}
		for _, set := range []string{"near-frontends", "port-frontends", "near-port-frontends", "sticky", "of-16"} {
			if strings.Contains(few, set) {
				k.Errorf("without a Service, set %s exists", set)
			}
		}
		before := p.families[0].kernel.commits.Load()
		k.sync(p, sdk.Update{From: 1, To: 2, Set: s.Services})
		if n := p.families[0].kernel.commits.Load() - before; n != 1 {
			k.Errorf("a Service that needs all parts took %d batches", n)
		}
		stage, err := g.Open(k.Context(), p, s)
		if err != nil {
			k.Fatal(err)
		}
		defer stage.Close()
		k.keptEndpoint(stage, s.Packets[0])
		k.checkListing()
		err = p.Do(k.Context(), func(map[sdk.Name]sdk.Service) error {
			f := p.families[0]
			counted := f.kernel.total
			if _, err := f.List(k.Context()); err != nil || f.kernel.total != counted {
				k.Errorf("%d elements were written, and the kernel has %d: %v", counted, f.kernel.total, err)
			}
			return nil
		})
		if err != nil {
			k.Fatal(err)
		}
		k.sync(p, sdk.Update{From: 2, To: 3, Delete: []sdk.Name{s.Services[0].Name}})
		p = next(next(p)) // the first new process removes the Service's sets and chains
		if now := k.text(); now != few {
			k.Errorf("after the Service was deleted, the tables are\n%s\nand were\n%s", now, few)
		}
		p.die()
	})
}
