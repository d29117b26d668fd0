// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/field"
)

const bothPolicies = `Affinity over frontends of both policies.
-- node --
addresses 192.0.2.10 2001:db8::10
pods      10.180.0.0/24
-- services --
ns1/web:http tcp
  cluster-ip    172.30.0.41:80
  load-balancer 198.51.100.1:80 local
  affinity      3h
  endpoint      10.180.0.1:8080 here
  endpoint      10.180.0.2:8080 here
  endpoint      10.180.1.1:8080
  endpoint      10.180.1.2:8080
ns1/node:http tcp
  cluster-ip 172.30.0.42:80
  affinity   3h
  endpoint   192.0.2.10:26733 here
-- packets --
10.180.0.9 > 172.30.0.41:80  = 10.180.0.1:8080 10.180.0.2:8080 10.180.1.1:8080 10.180.1.2:8080
10.180.0.9 > 198.51.100.1:80 = 10.180.0.1:8080 10.180.0.2:8080 10.180.1.1:8080 10.180.1.2:8080
198.18.0.7 > 198.51.100.1:80 = 10.180.0.1:8080 10.180.0.2:8080
198.18.0.7 > 172.30.0.41:80  = 10.180.0.1:8080 10.180.0.2:8080 10.180.1.1:8080 10.180.1.2:8080 masq
192.0.2.7  > 172.30.0.41:80  = 10.180.0.1:8080 10.180.0.2:8080 10.180.1.1:8080 10.180.1.2:8080 masq
192.0.2.7  > 198.51.100.1:80 = 10.180.0.1:8080 10.180.0.2:8080
192.0.2.7  > 172.30.0.41:80  = 10.180.0.1:8080 10.180.0.2:8080 10.180.1.1:8080 10.180.1.2:8080 masq
node       > 172.30.0.41:80  = 10.180.0.1:8080 10.180.0.2:8080 10.180.1.1:8080 10.180.1.2:8080 masq
10.180.0.9 > 172.30.0.42:80  = 192.0.2.10:26733
node       > 172.30.0.42:80  = 192.0.2.10:26733 masq
`

const inIPv6 = `The same client by two frontends.
-- node --
addresses 192.0.2.10 2001:db8::10
pods      fd00:10:180::/64
-- services --
ns1/web:http tcp
  cluster-ip [fd00:172:30::41]:80
  node-port  30080 local
  affinity   3h
  endpoint   [fd00:10:180::1]:8080 here
  endpoint   [fd00:10:180:1::1]:8080
  endpoint   [fd00:10:180:1::2]:8080
-- packets --
fd00:10:180::9 > [fd00:172:30::41]:80   = [fd00:10:180::1]:8080 [fd00:10:180:1::1]:8080 [fd00:10:180:1::2]:8080
fd00:10:180::9 > [2001:db8::10]:30080   = [fd00:10:180::1]:8080 [fd00:10:180:1::1]:8080 [fd00:10:180:1::2]:8080
fd00:10:180::9 > [fd00:172:30::41]:80   = [fd00:10:180::1]:8080 [fd00:10:180:1::1]:8080 [fd00:10:180:1::2]:8080
`

// A client keeps its endpoint at frontends of both policies if both lists have the endpoint. If it keeps an endpoint on
// another node, it gets a local endpoint at a Local frontend, and keeps both. The Service's number is never in the
// priority of a packet that leaves or is delivered, because the priority may select a queue.
func TestKernelAffinityOfBothPolicies(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, bothPolicies)
		p, stage := k.active(g, s)
		k.nft(`add table inet theirs
			add chain inet theirs sent { type filter hook postrouting priority 300; }
			add chain inet theirs received { type filter hook input priority 300; }
			add rule inet theirs sent ct state new tcp dport 8080 meta priority != none counter comment "numbered"
			add rule inet theirs received ct state new tcp dport 26733 meta priority != none counter comment "numbered"
			add rule inet theirs sent ct state new tcp dport 8080 counter comment "sent"`)
		var at []netip.AddrPort
		for _, p := range s.Packets {
			at = append(at, k.keptEndpoint(stage, p))
			may := slices.ContainsFunc(p.Want.Endpoints, func(ep netip.AddrPort) bool { return ep == at[len(at)-1] })
			if !may {
				k.Errorf("%s reached %s", p.Text, at[len(at)-1])
			}
		}
		text := k.nft("list", "table", "inet", "theirs")
		if strings.Count(text, `counter packets 0 bytes 0 comment "numbered"`) != 2 || strings.Contains(text, `packets 0 bytes 0 comment "sent"`) {
			k.Errorf("packets have a priority:\n%s", text)
		}
		k.nft("delete", "table", "inet", "theirs")
		p.die()
		six := k.place(g, inIPv6)
		_, stage = k.active(g, six)
		for _, p := range six.Packets {
			if now := k.keptEndpoint(stage, p); now != k.keptEndpoint(stage, six.Packets[0]) {
				k.Errorf("%s reached %s", p.Text, now)
			}
		}
		for _, same := range [][2]int{{0, 1}, {2, 3}, {4, 6}} {
			if at[same[0]] != at[same[1]] {
				k.Errorf("%q reached %s, and %q %s", s.Packets[same[0]].Text, at[same[0]], s.Packets[same[1]].Text, at[same[1]])
			}
		}
		k.checkListing()
	})
}

// When the affinity timeout changes or the process restarts, a Service keeps its number and its clients keep their
// endpoints. When affinity is turned off, all clients are removed.
func TestKernelAffinityKeepsItsNumber(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, sticking)
		p, stage := k.active(g, s)
		at := k.keptEndpoint(stage, s.Packets[0])
		name, was := s.Services[0].Name, number(0)
		for i, timeout := range []time.Duration{3 * time.Hour, time.Minute, 2 * time.Hour, 2 * time.Hour} {
			p.die()
			p = k.start()
			k.sync(p, s.Update(1))
			s.Services[0].Affinity = timeout
			k.sync(p, sdk.Update{From: 1, To: 2, Set: s.Services})
			if now := k.keptEndpoint(stage, s.Packets[0]); now != at {
				k.Errorf("%s: a client went from %s to %s", timeout, at, now)
			}
			n := p.families[0].Installed()[name].number
			if n == 0 || i > 0 && n != was {
				k.Errorf("%s: the Service's number changed from %d to %d", timeout, was, n)
			}
			was = n
			for _, e := range k.exported(p) {
				if e.Left <= 0 || e.Left > timeout {
					k.Errorf("%s: %+v", timeout, e)
				}
			}
		}
		s.Services[0].Affinity = 0
		k.sync(p, sdk.Update{From: 2, To: 3, Set: s.Services})
		if text := k.nft("list", "map", "ip", table, "sticky"); strings.Contains(text, "elements") {
			k.Errorf("the map has clients although affinity is off:\n%s", text)
		}
	})
}

// If a process was killed while it removed the clients of an endpoint, the next process removes them.
func TestKernelAffinityPurgesAfterACrash(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, sticking)
		p, stage := k.active(g, s)
		at := k.keptEndpoint(stage, s.Packets[0])
		svc := s.Services[0]
		less := svc
		less.Cluster = slices.DeleteFunc(slices.Clone(svc.Cluster), func(ep sdk.Endpoint) bool { return ep.Addr == at })
		err := p.Do(k.Context(), func(map[sdk.Name]sdk.Service) error {
			f := p.families[0]
			desired, err := want(less)
			if err != nil {
				return err
			}
			b := nftnl.NewBatch(f.NFT(), table)
			for _, c := range changesOf(f.ip, svc.Name, f.Installed()[svc.Name], desired.withSlotsOf(f.Installed()[svc.Name], f.nextNumber)) {
				if c.Op == reconcile.Remove && f.Kind(c.Key).Remove == removeMembers {
					b.Remove(c.Key.name, c.Key.element(c.Old))
				}
			}
			return f.kernel.send(k.Context(), b)
		})
		if err != nil {
			k.Fatal(err)
		}
		p.die()
		next := k.start()
		k.sync(next, sdk.Update{Full: true, To: 1, Node: &s.Node, Set: []sdk.Service{less}})
		for _, e := range k.exported(next) {
			if e.Endpoint == at {
				k.Errorf("%s is kept at a removed endpoint", e.Client)
			}
		}
		k.keptEndpoint(stage, s.Packets[0])
	})
}

// exported returns the clients that a process exports.
func (k kernel) exported(p *plugin) (all []sdk.AffinityEntry) {
	k.Helper()
	if err := p.ExportAffinity(k.Context(), func(e sdk.AffinityEntry) error { all = append(all, e); return nil }); err != nil {
		k.Fatal(err)
	}
	return all
}
