// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Inspect reports the frontends in our sets, and the destinations of their virtual servers. It opens its own handle
// to the kernel, because it runs while other calls run.
func (p *plugin) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	k, err := p.machine.open(false)
	if err != nil {
		return err
	}
	defer k.close()
	all, err := k.read(ctx)
	if err != nil {
		return err
	}
	wanted := make(map[sdk.Name]*piece)
	err = p.Beside(ctx, func() error {
		for _, f := range p.session.families {
			maps.Copy(wanted, f.Desired())
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, of := range families {
		active, err := hasServiceJumps(ctx, p.machine.toolsInUse(ctx, of))
		if err != nil {
			return err
		}
		role := sdk.Standby // then all weights are 0, and endpoints reports the destinations that would serve
		if active {
			role = sdk.Active
		}
		pieces, _ := parse(all.ours(of, nil), all.addrs.of(of).others, role)
		for name, had := range pieces {
			for _, m := range had.members {
				served, ok := parseServed(name, m)
				if !ok {
					continue
				}
				served.Endpoints = endpoints(m, had, wanted[name], active)
				if err := tell(served); err != nil {
					return err
				}
			}
		}
	}
	return ctx.Err()
}

// hasServiceJumps reports whether rules lead new connections to this dataplane.
func hasServiceJumps(ctx context.Context, tools []iptables.Tool) (bool, error) {
	for _, tool := range tools {
		tables, err := tool.SaveIf(ctx, isOurs, "nat")
		if err != nil {
			return false, err
		}
		for _, rules := range tables {
			if slices.ContainsFunc(rules, func(r iptables.Rule) bool { return r.Target() == servicesChain }) {
				return true, nil
			}
		}
	}
	return false, nil
}

// parseServed returns the frontend that a set member stands for.
func parseServed(name sdk.Name, m member) (sdk.Served, bool) {
	kind, registered := kindOf(m.set, m.note)
	f := sdk.Frontend{Kind: kind, Addr: netip.AddrPortFrom(m.addr, m.port), Policy: sdk.Cluster}
	if strings.HasSuffix(m.comment, " "+sdk.Local.String()) {
		f.Policy = sdk.Local
	}
	if m.set.hasNodePorts() {
		f.Addr = netip.AddrPortFrom(iptables.Unspecified(m.family), m.port)
	}
	return sdk.Served{Name: name, Frontend: f}, registered
}

// kindOf returns the kind of frontend that a set has. A Local frontend may be in two sets: only the one for all
// policies counts.
func kindOf(s set, n note) (sdk.Kind, bool) {
	switch s {
	case clusterIPs:
		return sdk.ClusterIP, true
	case loadBalancers:
		return sdk.LoadBalancer, true
	case externalIPs, externalIPsLocal:
		if strings.Contains(n.comment, " "+sdk.NodePort.String()) {
			return sdk.NodePort, true
		}
		return sdk.ExternalIP, true
	case nodePortsTCP, nodePortsUDP, nodePortsSCTP:
		return sdk.NodePort, true
	}
	return 0, false
}

// endpoints returns the destinations of new connections to a frontend, or those it would have if this dataplane
// were Active. had is the piece in the kernel, and wanted the desired one, which the kernel does not completely show
// in other roles: virtual servers at addresses of the node may be missing, because they would receive packets, and
// removed destinations that still have connections look like desired ones.
func endpoints(m member, had, wanted *piece, active bool) []netip.AddrPort {
	s, there := had.frontend(m)
	if active {
		return s.state.serving.list()
	}
	w, known := wanted.frontend(m)
	if !there {
		return w.dests.list()
	}
	all, want := slices.SortedFunc(maps.Keys(s.state.weights()), netip.AddrPort.Compare), w.dests.list()
	return slices.DeleteFunc(all, func(dest netip.AddrPort) bool { return known && !contains(want, dest) })
}

// frontend returns the virtual server of a set member. Those of a node port are all alike.
func (p *piece) frontend(m member) (server, bool) {
	for _, s := range p.list() {
		if !s.covered && (s.any && m.set.hasNodePorts() && s.at.addr.Port() == m.port || s.at == m.entry.key()) {
			return s, true
		}
	}
	return server{}, false
}

// Trace evaluates the node's rules for a packet. It ends where IPVS takes the packet.
func (p *plugin) Trace(ctx context.Context, packet sdk.Packet) (sdk.Traced, error) {
	return hooks.Trace(ctx, packet, "")
}
