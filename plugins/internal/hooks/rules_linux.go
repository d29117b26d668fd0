// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/sdk"
)

// basesNow reads all base chains for a family's packets, in the order in which the kernel calls them. notes
// describes what it could not read.
func basesNow(ctx context.Context, family sdk.Family) (bases []oracle.Base, notes []string, err error) {
	conn, err := nftnl.Dial()
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	own := map[sdk.Family]nftnl.Family{sdk.IPv4: nftnl.IPv4, sdk.IPv6: nftnl.IPv6}[family]
	for _, of := range []nftnl.Family{own, nftnl.Inet, nftnl.NetDev, nftnl.Bridge} {
		chains, err := conn.BaseChains(ctx, of)
		if err != nil {
			return nil, nil, fmt.Errorf("list the base chains of nf_tables: %w", err)
		}
		var compat *oracle.Rules
		if of == own { // after its chains: one of iptables that is made meanwhile is not listed as another's
			compat, _ = readIPTables(ctx, family, iptables.NFT) // without it, its rules are those of any table
		}
		handles, tables := make(map[string]uint64), make(map[string]*oracle.TableRules)
		for _, c := range chains {
			b := oracle.Base{
				Of: fmt.Sprintf("nftables, table %s %s", families[of], c.Table), Hook: c.Hook.At, Priority: c.Hook.Priority, NAT: c.Hook.Type == "nat",
			}
			if of == nftnl.NetDev || of == nftnl.Bridge || c.Hook.At > nftnl.PostRouting {
				notes = append(notes, fmt.Sprintf("%s, chain %s may see packets before the hooks of IP, and the walk does not follow it", b.Of, c.Name))
				continue
			}
			list := conn.List(of, c.Table)
			if _, known := handles[c.Table]; !known {
				t, err := list.Table(ctx)
				if err != nil {
					return nil, nil, fmt.Errorf("%s: %w", b.Of, err)
				}
				if t != nil {
					handles[c.Table] = t.Handle
				}
			}
			b.Age = [2]uint64{handles[c.Table], c.Handle}
			if h := (oracle.Hook{Table: c.Table, Chain: c.Name}); of == own && compat.Has(h) {
				b.Of, b.At = compat.Of+", table "+h.Table, func(p oracle.Packet) ([]oracle.Path, error) { return compat.At(p, h) }
				if !compat.Idle(h) {
					bases = append(bases, b)
				}
				continue
			}
			if tables[c.Table] == nil {
				t, err := oracle.ReadTable(ctx, list)
				if err != nil {
					return nil, nil, fmt.Errorf("%s: %w", b.Of, err)
				}
				tables[c.Table] = oracle.NFTables(t)
			}
			t := tables[c.Table]
			b.At = func(p oracle.Packet) ([]oracle.Path, error) { return t.At(p, c.Name) }
			bases = append(bases, b)
		}
	}
	if iptables.InUse(family, iptables.Legacy) {
		r, err := readIPTables(ctx, family, iptables.Legacy)
		if err != nil {
			notes = append(notes, fmt.Sprintf("legacy iptables has tables here that cannot be read, and the walk leaves them out: %v", err))
		}
		old := r.Bases()
		if slices.ContainsFunc(old, isNAT) && slices.ContainsFunc(bases, isNAT) {
			notes = append(notes, "legacy iptables and nf_tables both have nat rules: the kernel does not report their order, and the walk evaluates nf_tables first")
		}
		bases = append(bases, old...)
	}
	for i, b := range bases {
		bases[i].At = func(p oracle.Packet) ([]oracle.Path, error) { return evalBase(b, p) }
	}
	balances, err := ipvsBases()
	if err != nil {
		return nil, nil, err
	}
	bases = append(bases, balances...)
	oracle.Sort(bases)
	return bases, notes, nil
}

func isNAT(b oracle.Base) bool { return b.NAT }

var families = map[nftnl.Family]string{nftnl.IPv4: "ip", nftnl.IPv6: "ip6", nftnl.Inet: "inet", nftnl.NetDev: "netdev", nftnl.Bridge: "bridge"}

// evalBase evaluates a base chain for a packet. The walk ends at a rule that the oracle does not understand.
func evalBase(b oracle.Base, p oracle.Packet) ([]oracle.Path, error) {
	paths, err := b.At(p)
	var unknown *oracle.Unknown
	if !errors.As(err, &unknown) {
		return paths, err
	}
	path := acceptedPath(p)
	unknown.Of = b.Of
	path.Then = fmt.Sprintf("a rule that is not understood: %v", unknown)
	return []oracle.Path{path}, nil
}

// readIPTables reads the rules of one backend of iptables. The result has no rules if the program is missing or
// cannot print the tables.
func readIPTables(ctx context.Context, family sdk.Family, backend iptables.Backend) (*oracle.Rules, error) {
	none := oracle.IPTables(iptables.Tables{})
	if !iptables.InUse(family, backend) {
		return none, nil
	}
	tool, err := iptables.Open(ctx, family, backend)
	if err != nil {
		return none, err
	}
	tables, drops, err := tool.Whole(ctx)
	if err != nil {
		return none, err
	}
	r := oracle.IPTables(tables)
	r.Of = tool.Prefix
	r.Drops = drops
	r.Remembers = true
	r.Member = member
	r.Mark = func(set, parts string, p oracle.Packet) ([2]uint32, error) { return marked(ctx, set, parts, p) }
	return r, nil
}
