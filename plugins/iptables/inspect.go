// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// Inspect tells what the kernel's tables serve, and nothing else: each
// frontend is read from the rule that catches its packets, and its endpoints from
// the chain behind.
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

// served are the frontends that tables serve.
func served(family sdk.Family, tables iptables.Tables) []sdk.Served {
	r := reading{family: family, tables: tables, found: make(map[entryOf]sdk.Served)}
	for id, rules := range tables {
		if !catches(id) {
			continue
		}
		for _, rule := range rules {
			r.entry(rule)
		}
	}
	return slices.Collect(maps.Values(r.found))
}

// catches reports whether entries stand in chain id.
func catches(id iptables.ID) bool {
	switch id {
	case nat(services), nat(nodePorts), filter(services), filter(turnedAway):
		return true
	}
	return strings.HasPrefix(id.Chain, "KUBE-VIP-") || strings.HasPrefix(id.Chain, "KUBE-NP-")
}

// An entryOf tells frontends apart that were found; a frontend may have an entry
// in both tables.
type entryOf struct {
	name sdk.Name
	addr netip.AddrPort
}

// A reading makes out frontends in one family's tables.
type reading struct {
	family sdk.Family
	tables iptables.Tables
	found  map[entryOf]sdk.Served
}

// entry notes the frontend that rule catches packets of, if it does.
func (r *reading) entry(rule iptables.Rule) {
	key, ok := caught(rule, r.family)
	if !ok {
		return
	}
	target := rule.Target()
	name, f, ok := iptables.LabelledFrontend(rule.Comment())
	switch {
	case ok:
	case strings.HasPrefix(target, "KUBE-SVC-"):
		name, f = r.owner(target), sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster}
	case strings.HasPrefix(target, "KUBE-SVL-"):
		name, f = r.owner(target), sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Local}
	}
	if name.Service == "" {
		return
	}
	name.Protocol, name.Family = key.Protocol, r.family
	f.Addr = netip.AddrPortFrom(key.Addr, key.Port)
	chain := clusterChain(name)
	if f.Policy == sdk.Local {
		chain = localChain(name)
	}
	r.found[entryOf{name, f.Addr}] = sdk.Served{Name: name, Frontend: f, Endpoints: r.endpoints(nil, make(map[netip.AddrPort]bool), nat(chain))}
}

// owner is the Service whose chain is called so: the first word of its first comment says it.
func (r *reading) owner(chain string) sdk.Name {
	for _, rule := range r.tables[nat(chain)] {
		if label, _, _ := strings.Cut(rule.Comment(), " "); label != "" {
			return iptables.Labelled(label)
		}
	}
	return sdk.Name{}
}

// endpoints adds to those already found, which has names, where chain id sends packets.
func (r *reading) endpoints(found []netip.AddrPort, has map[netip.AddrPort]bool, id iptables.ID) []netip.AddrPort {
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

// caught is what packets rule catches: those to one port, and mostly one address.
func caught(rule iptables.Rule, family sdk.Family) (tree.Key, bool) {
	k := tree.Key{Addr: iptables.Unspecified(family)}
	before := ""
	for word := range rule.All() {
		switch before {
		case "-d":
			prefix, err := netip.ParsePrefix(word)
			if err != nil || !prefix.IsSingleIP() {
				return k, false
			}
			k.Addr = prefix.Addr()
		case "-p":
			k.Protocol = iptables.ProtocolCalled(word)
		case "--dport":
			port, err := strconv.ParseUint(word, 10, 16)
			if err != nil {
				return k, false // a range: a branch, and no entry
			}
			k.Port = uint16(port)
		}
		before = word
	}
	return k, k.Port != 0 && k.Protocol != 0
}

// Trace walks a packet through the rules of the node.
func (p *plugin) Trace(ctx context.Context, packet sdk.Packet) (sdk.Traced, error) {
	return hooks.Trace(ctx, packet, "")
}
