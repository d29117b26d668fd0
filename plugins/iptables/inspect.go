// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
)

// Inspect reports what the kernel's tables serve. It reads each frontend from the rule that matches its
// packets, and the endpoints from the chains that this rule leads to. It does not use what this process
// remembers.
func (p *plugin) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	tools := p.tools()
	if len(tools) == 0 {
		return errors.New("nothing to inspect yet: call Configure first")
	}
	for _, tool := range tools {
		tables, err := tool.Save(ctx, "nat", "filter")
		if err == nil {
			err = tables.WasRead(isOurs)
		}
		if err != nil {
			return err
		}
		if err := frame.TellServed(ctx, served(tool.Family, tables), tell); err != nil {
			return err
		}
	}
	return nil
}

// served returns the frontends that the tables serve.
func served(family sdk.Family, tables iptables.Tables) []sdk.Served {
	r := tableReader{family: family, tables: tables, found: make(map[frontendKey]sdk.Served)}
	trees := ruleConfig(family).Trees[:healthPorts]
	for id, all := range tables {
		in := slices.IndexFunc(trees, func(t rules.Tree) bool { return t.Has(id) })
		if in < 0 {
			continue
		}
		for _, rule := range all {
			if key, rest, ok := trees[in].Read(rule); ok && key.Port != 0 {
				r.addEntry(rules.Entry{In: in, Key: key, Rule: rest})
			}
		}
	}
	return slices.Collect(maps.Values(r.found))
}

// A frontendKey identifies a frontend that was read. A frontend may have an entry in both tables.
type frontendKey struct {
	name sdk.Name
	addr netip.AddrPort
}

// A tableReader reads the frontends of one family from its tables.
type tableReader struct {
	family sdk.Family
	tables iptables.Tables
	found  map[frontendKey]sdk.Served
}

// addEntry records the frontend that an entry belongs to. The entry of a ClusterIP may have no comment: then
// the chain that it jumps to identifies the Service.
func (r *tableReader) addEntry(e rules.Entry) {
	target := e.Rule.Target()
	_, f, ok := iptables.LabelledFrontend(e.Rule.Comment())
	switch {
	case ok:
	case strings.HasPrefix(target, "KUBE-SVC-"):
		f = sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster}
	case strings.HasPrefix(target, "KUBE-SVL-"):
		f = sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Local}
	default:
		return
	}
	name, ok := owner(r.family, e, func(id iptables.ID) string { return iptables.Join(r.tables[id][:min(1, len(r.tables[id]))]) })
	if !ok {
		return
	}
	addr := e.Key.Addr
	if !addr.IsValid() {
		addr = iptables.Unspecified(r.family)
	}
	f.Addr = netip.AddrPortFrom(addr, e.Key.Port)
	chain := clusterChain(name)
	if f.Policy == sdk.Local {
		chain = localChain(name)
	}
	r.found[frontendKey{name, f.Addr}] = sdk.Served{Name: name, Frontend: f, Endpoints: r.endpoints(nil, make(map[netip.AddrPort]bool), nat(chain))}
}

// endpoints appends the endpoints that chain id leads to, except those in has, to found. It adds them to has.
func (r *tableReader) endpoints(found []netip.AddrPort, has map[netip.AddrPort]bool, id iptables.ID) []netip.AddrPort {
	for _, rule := range r.tables[id] {
		switch target := rule.Target(); {
		case target == "DNAT":
			_, to, _ := strings.Cut(string(rule), "--to-destination ")
			ep, err := netip.ParseAddrPort(to)
			if err == nil && !has[ep] {
				has[ep] = true
				found = append(found, ep)
			}
		case strings.HasPrefix(target, "KUBE-SEP-"), strings.HasPrefix(target, id.Chain):
			found = r.endpoints(found, has, nat(target))
		}
	}
	return found
}

// Watch reports what rules do with packets. The kernel can trace them only through the rules of iptables-nft.
func (p *plugin) Watch(ctx context.Context, packet sdk.Packet, tell func(sdk.WatchedPacket) error) error {
	for _, tool := range p.tools() {
		if tool.Backend == iptables.Legacy {
			return &sdk.Refusal{Why: "the kernel cannot trace packets through the rules of iptables-legacy", Try: "pointsman explain SRC DST:PORT without --watch, or the metric pointsman_dropped_packets_total"}
		}
	}
	return hooks.Watch(ctx, packet, "filter", reasons, tell)
}

// Trace evaluates the node's rules for a packet and reports which of them match.
func (p *plugin) Trace(ctx context.Context, packet sdk.Packet) (sdk.Traced, error) {
	return hooks.Trace(ctx, packet, "")
}
