// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Inspect tells what the kernel has: which frontends our sets know of, and where
// their virtual servers send. It runs beside other calls, so it opens a way of its
// own to the kernel, and looks at nothing that they change.
func (p *plugin) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	k, err := p.edges.open()
	if err != nil {
		return err
	}
	defer k.close()
	all, err := k.Sets(ctx)
	if err != nil {
		return err
	}
	servers, err := k.Servers()
	if err != nil {
		return err
	}
	addrs, err := k.Addrs()
	if err != nil {
		return err
	}
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		v := view{servers: servers, others: addrs.of(family).others, parked: p.parked}
		if v.awake, err = p.catches(ctx, family); err != nil {
			return err
		}
		for e, n := range all[family].entries {
			served, ok := v.served(e, n)
			if !ok {
				continue
			}
			if err := tell(served); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// catches reports whether rules lead new connections our way.
func (p *plugin) catches(ctx context.Context, family sdk.Family) (bool, error) {
	rulers, err := p.edges.ruled(ctx, family)
	if err != nil {
		return false, err
	}
	for _, r := range rulers {
		tables, err := r.Save(ctx)
		if err != nil {
			return false, err
		}
		for _, rules := range tables {
			if slices.ContainsFunc(rules, func(r iptables.Rule) bool { return r.Target() == services }) {
				return true, nil
			}
		}
	}
	return false, nil
}

// A view is what there is to be told, in one family.
type view struct {
	servers map[server]virtual
	others  []netip.Addr
	parked  *parked
	awake   bool // else no real has weight, and all are told that would
}

// served is the frontend that an entry registers.
func (v *view) served(e entry, n note) (sdk.Served, bool) {
	protocol := e.protocol
	if protocol == 0 {
		protocol = e.portProtocol()
	}
	name, ok := labelled(n.comment, protocol, e.family)
	kind, registered := kindOf(e.set, n)
	if !ok || !registered {
		return sdk.Served{}, false
	}
	f := sdk.Frontend{Kind: kind, Addr: netip.AddrPortFrom(e.addr, e.port), Policy: sdk.Cluster}
	if strings.HasSuffix(n.comment, " "+sdk.Local.String()) {
		f.Policy = sdk.Local
	}
	at := e.server()
	if kind == sdk.NodePort && !strings.Contains(n.comment, " "+sdk.NodePort.String()) {
		f.Addr = netip.AddrPortFrom(everywhere(e.family), e.port)
		at = v.nodePort(e.family, protocol, e.port)
	}
	return sdk.Served{Name: name, Frontend: f, Endpoints: v.endpoints(at)}, true
}

// kindOf is the kind of frontend that a set is of. Of the two sets that a Local one
// may be in, the one that all are in tells.
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

// nodePort is a virtual server of a node port: they are all alike.
func (v *view) nodePort(f sdk.Family, p sdk.Protocol, port uint16) server {
	for _, addr := range v.others {
		at := server{family: f, protocol: p, addr: netip.AddrPortFrom(addr, port)}
		_, there := v.servers[at]
		if _, left := v.parked.at(at); there || left {
			return at
		}
	}
	return server{}
}

// endpoints are where new connections go, or would if this dataplane were active.
func (v *view) endpoints(at server) []netip.AddrPort {
	s, there := v.servers[at]
	if v.awake {
		return s.serving()
	}
	wanted, parked := v.parked.at(at)
	if !there {
		return wanted
	}
	reals := slices.SortedFunc(maps.Keys(s.reals), netip.AddrPort.Compare)
	if parked {
		reals = slices.DeleteFunc(reals, func(real netip.AddrPort) bool {
			_, found := slices.BinarySearchFunc(wanted, real, netip.AddrPort.Compare)
			return !found
		})
	}
	return reals
}

func everywhere(f sdk.Family) netip.Addr {
	if f == sdk.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
