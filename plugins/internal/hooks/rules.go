// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/nftrace"
	"github.com/pointsman/pointsman/plugins/internal/trace"
	"github.com/pointsman/pointsman/sdk"
)

// rulesNow reads every base chain that a family's packets come to, in the order in which they do.
func rulesNow(ctx context.Context, family sdk.Family) ([]stage, error) {
	var k kernel
	nft, err := nftables(ctx, family)
	if err != nil {
		return nil, err
	}
	legacy, err := legacy(ctx, family)
	k.stages = append(nft, legacy...)
	k.sort()
	return k.stages, err
}

// nftables reads the base chains of nf_tables: those of iptables by its own program, where it is there.
func nftables(ctx context.Context, family sdk.Family) (stages []stage, err error) {
	conn, err := nftnl.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	own := map[sdk.Family]nftnl.Family{sdk.IPv4: nftnl.IPv4, sdk.IPv6: nftnl.IPv6}[family]
	var compat ruleset
	for _, of := range []nftnl.Family{own, nftnl.Inet, nftnl.NetDev, nftnl.Bridge} {
		chains, err := conn.BaseChains(ctx, of)
		if err != nil {
			return nil, fmt.Errorf("list the base chains of nf_tables: %w", err)
		}
		if of == own { // after its chains: one of iptables that is made meanwhile is not listed as another's
			compat = theirs(ctx, family)
		}
		tables := make(map[string]*nftrace.Tracer)
		for _, c := range chains {
			s := stage{table: fmt.Sprintf("nftables, table %s %s", families[of], c.Table), chain: c.Name, at: c.Hook.At, priority: c.Hook.Priority, nat: c.Hook.Type == "nat"}
			switch id := (iptables.ID{Table: c.Table, Chain: c.Name}); {
			case of == nftnl.NetDev || of == nftnl.Bridge || c.Hook.At > nftnl.PostRouting:
				s.beforeIP()
			case of == own && compat.has(id):
				s.table, s.walk = compat.table(id), compat.walk(id)
			default:
				if err := s.native(ctx, conn.List(of, c.Table), tables); err != nil {
					return nil, err
				}
			}
			stages = append(stages, s)
		}
	}
	return stages, nil
}

var families = map[nftnl.Family]string{nftnl.IPv4: "ip", nftnl.IPv6: "ip6", nftnl.Inet: "inet", nftnl.NetDev: "netdev", nftnl.Bridge: "bridge"}

// native walks a chain as nf_tables lists it.
func (s *stage) native(ctx context.Context, list nftnl.Listing, tables map[string]*nftrace.Tracer) error {
	t := tables[s.table]
	if t == nil {
		table, err := nftrace.Read(ctx, list)
		if err != nil {
			return fmt.Errorf("%s: %w", s.table, err)
		}
		t = nftrace.New(table)
		tables[s.table] = t
	}
	chain := s.chain
	s.walk = func(p trace.Packet) ([]trace.Path, error) { return t.At(p, chain) }
	return nil
}

// first is before every hook of IP.
const first = -1 << 31

// beforeIP is a chain at a hook before those of IP, which this package does not walk.
func (s *stage) beforeIP() {
	s.at, s.priority = nftnl.PreRouting, first
	s.walk = func(p trace.Packet) ([]trace.Path, error) {
		if p.In == "lo" {
			return []trace.Path{{Verdict: trace.Accept, To: p.Destination(), Translated: p.Translated.IsValid(), Chance: 1, Mark: p.Mark}}, nil
		}
		return nil, fmt.Errorf("it may see packets before IP does")
	}
}

// A ruleset is what iptables' programs of one backend and family print.
type ruleset struct {
	tool   iptables.Tool
	tables iptables.Tables
	tracer *trace.Tracer
}

// theirs are the rules of iptables in nf_tables; none where its programs are not there, or do not
// understand the tables.
func theirs(ctx context.Context, family sdk.Family) ruleset {
	if !iptables.InUse(family, iptables.NFT) {
		return ruleset{}
	}
	tool, err := iptables.Open(ctx, family, iptables.NFT)
	if err != nil {
		return ruleset{}
	}
	r, err := printed(ctx, tool)
	if err != nil {
		return ruleset{}
	}
	return r
}

func printed(ctx context.Context, tool iptables.Tool) (ruleset, error) {
	tables, drops, err := tool.Whole(ctx)
	if err != nil {
		return ruleset{}, err
	}
	t := trace.New(tables)
	t.Drops = func(h trace.Hook) bool { return drops[iptables.ID(h)] }
	t.Recent, t.Member, t.Marks, t.Socket = recent, member, marksBy(ctx), hasSocket
	return ruleset{tool, tables, t}, nil
}

func (r ruleset) has(id iptables.ID) bool {
	_, there := r.tables[id]
	return there
}

func (r ruleset) table(id iptables.ID) string { return r.tool.Prefix + ", table " + id.Table }

func (r ruleset) walk(id iptables.ID) func(trace.Packet) ([]trace.Path, error) {
	return func(p trace.Packet) ([]trace.Path, error) { return r.tracer.At(p, trace.Hook(id)) }
}

// priorities are where legacy iptables' tables are, and with which one: NF_IP_PRI_*.
var priorities = map[string]map[string]int32{
	"raw":      {"PREROUTING": -300, "OUTPUT": -300},
	"mangle":   {"PREROUTING": -150, "INPUT": -150, "FORWARD": -150, "OUTPUT": -150, "POSTROUTING": -150},
	"nat":      {"PREROUTING": -100, "INPUT": 100, "OUTPUT": -100, "POSTROUTING": 100},
	"filter":   {"INPUT": 0, "FORWARD": 0, "OUTPUT": 0},
	"security": {"INPUT": 50, "FORWARD": 50, "OUTPUT": 50},
}

var chains = map[string]uint32{
	"PREROUTING": nftnl.PreRouting, "INPUT": nftnl.Input, "FORWARD": nftnl.Forward, "OUTPUT": nftnl.Output, "POSTROUTING": nftnl.PostRouting,
}

// legacy reads the tables of legacy iptables.
func legacy(ctx context.Context, family sdk.Family) ([]stage, error) {
	if !iptables.InUse(family, iptables.Legacy) {
		return nil, nil
	}
	tool, err := iptables.Open(ctx, family, iptables.Legacy)
	if err != nil {
		return nil, unknownf("legacy iptables has tables here, and they cannot be read: %v", err)
	}
	r, err := printed(ctx, tool)
	if err != nil {
		return nil, unknownf("legacy iptables has tables here, and they cannot be read: %v", err)
	}
	return r.stages(), nil
}

// stages are the kernel's own chains, where legacy iptables has them.
func (r ruleset) stages() (stages []stage) {
	for _, id := range slices.SortedFunc(maps.Keys(r.tables), func(a, b iptables.ID) int { return cmp.Compare(a.String(), b.String()) }) {
		if priority, is := priorities[id.Table][id.Chain]; is {
			stages = append(stages, stage{table: r.table(id), chain: id.Chain, at: chains[id.Chain], priority: priority, nat: id.Table == "nat", walk: r.walk(id)})
		}
	}
	return stages
}

// recent reports whether the kernel remembers an address in a list of the recent match. What cannot
// be read has it.
func recent(list string, from netip.Addr) bool {
	data, err := os.ReadFile("/proc/thread-self/net/xt_recent/" + list)
	return err != nil || remembers(string(data), from)
}
