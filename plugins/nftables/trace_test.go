// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// modelOf returns a node with the table of a family that the dataplane would write to serve s.
func modelOf(t *testing.T, of sdk.Family, s sdktest.Scenario) oracle.Node {
	t.Helper()
	f := newFamily(of, options{}, new(atomic.Uint32), new(masquerade.Keeper), new(plugin), frame.Env{Log: slog.New(slog.DiscardHandler)})
	f.node = nodeConfig{ip: f.ip, node: s.Node}
	f.SetRole(sdk.Active)
	f.Refix()
	for _, a := range s.Node.Addrs {
		if sdk.FamilyOf(a) != of {
			continue
		}
		if s.Node.TakesNodePorts(a) {
			f.node.own = append(f.node.own, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	all := make(map[sdk.Name]piece)
	for _, svc := range s.Services {
		if svc.Name.Family != of {
			continue
		}
		w, err := f.Want(svc)
		if err != nil {
			t.Fatal(err)
		}
		all[svc.Name] = w
	}
	f.SetDesired(all)
	f.Plan() // from an empty table
	return nodeOf(written(f, all))
}

// nodeOf returns a node that has only this table.
func nodeOf(table oracle.Table) (n oracle.Node) {
	rules := oracle.NFTables(table)
	for name, c := range table.Chains {
		if c.Hook != nil {
			n.Bases = append(n.Bases, oracle.Base{
				Hook: c.Hook.At, Priority: c.Hook.Priority, NAT: c.Hook.Type == "nat",
				At: func(p oracle.Packet) ([]oracle.Path, error) { return rules.At(p, name) },
			})
		}
	}
	oracle.Sort(n.Bases)
	return n
}

// trace returns the paths of a packet, sorted by destination.
func trace(n oracle.Node, p oracle.Packet) ([]oracle.Path, error) {
	paths, err := n.Walk(p)
	paths = oracle.Merge(paths)
	slices.SortFunc(paths, func(a, b oracle.Path) int { return a.To.Compare(b.To) })
	return paths, err
}

// written returns the table that serves the pieces.
func written(f *family, all map[sdk.Name]piece) oracle.Table {
	table := oracle.Table{Chains: make(map[string]oracle.Chain), Elements: make(map[string][]nftnl.Element)}
	for name := range f.kernel.layout.sets {
		table.Elements[name] = nil
	}
	for name, made := range f.kernel.layout.chains {
		chain := oracle.Chain{Hook: made.Hook}
		for _, r := range made.Rules {
			chain.Rules = append(chain.Rules, r)
		}
		table.Chains[name] = chain
	}
	add := func(k entryKey, v entryValue) {
		if k.kind == ofElement {
			table.Elements[k.name] = append(table.Elements[k.name], k.element(v))
		}
	}
	counted := make(map[entryKey]bool)
	for name, w := range all {
		f.Entries(name, w, func(k entryKey, v entryValue) {
			if !counted[k] {
				add(k, v)
			}
			counted[k] = f.Kind(k).Counted
		})
	}
	for _, p := range f.node.own {
		add(elementKey("own", string(p.Addr().AsSlice())), entryValue{})
	}
	return table
}

// answered returns the expected result for a packet. If no frontend has its destination, the node rejects a packet to a
// ClusterIP and drops a packet to a range of ClusterIPs.
func answered(s sdktest.Scenario, p sdktest.Packet) sdktest.Outcome {
	addr := p.To.Addr()
	isClusterIP := func(f sdk.Frontend) bool { return f.Kind == sdk.ClusterIP && f.Addr.Addr() == addr }
	switch {
	case !p.Want.Unserved || slices.Contains(s.Node.Addrs, addr):
		return p.Want
	case slices.ContainsFunc(s.Services, func(svc sdk.Service) bool { return slices.ContainsFunc(svc.Frontends, isClusterIP) }):
		return sdktest.Outcome{Verdict: sdk.Reject}
	case slices.ContainsFunc(s.Node.ServiceCIDRs, func(c netip.Prefix) bool { return c.Contains(addr) }):
		return sdktest.Outcome{Verdict: sdk.Drop}
	}
	return p.Want
}

// A ClusterIP may be an address of the node, as that of a host's canary is. Listeners at this address remain reachable,
// directly and through other Services, and node ports are masqueraded by their own policy.
const atOwnAddress = `A Service at the node's own address.
-- node --
addresses 192.0.2.10 2001:db8::10
pods      10.180.0.0/24
-- services --
ns1/web:http tcp
  cluster-ip 192.0.2.10:20819
  node-port  30107
  endpoint   192.0.2.10:26733 here
ns1/far:http tcp
  cluster-ip 172.30.0.41:80
  endpoint   192.0.2.10:26733 here
ns1/out:http tcp
  cluster-ip 172.30.0.42:80
  node-port  30108
  endpoint   10.180.1.1:8080
ns1/local:http tcp
  cluster-ip 172.30.0.43:80
  node-port  30109 local
  endpoint   10.180.0.1:8081 here
-- packets --
10.180.0.9 > 172.30.0.41:80   = 192.0.2.10:26733
node       > 192.0.2.10:26733 = unserved
198.18.0.7 > 192.0.2.10:30108 = 10.180.1.1:8080 masq
10.180.0.9 > 192.0.2.10:30108 = 10.180.1.1:8080 masq
198.18.0.7 > 192.0.2.10:30109 = 10.180.0.1:8081
`

// Every packet of every scenario takes the expected path through the table that would be written. The test needs no
// kernel.
func TestScenariosTraced(t *testing.T) {
	more, err := sdktest.Parse("at own address", []byte(atOwnAddress))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(sdktest.Scenarios(), more) {
		t.Run(s.Name, func(t *testing.T) {
			models := map[sdk.Family]oracle.Node{sdk.IPv4: modelOf(t, sdk.IPv4, s), sdk.IPv6: modelOf(t, sdk.IPv6, s)}
			for _, p := range s.Packets {
				paths, err := trace(models[sdk.FamilyOf(p.To.Addr())], rulestest.Packet(p, s.Node.Addrs))
				if err != nil {
					t.Fatal(err)
				}
				want := answered(s, p)
				if found := rulestest.Outcome(t, paths, want); !found.Equal(want) {
					t.Errorf("line %d, %s: got %s, want %s", p.Line, p.Text, found, want)
				}
			}
		})
	}
}
