// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Inspect tells what the kernel has: which frontends our sets know of, and where
// their virtual services send. It runs beside other calls, so it opens a way of its
// own to the kernel, and looks at nothing that they change.
func (p *plugin) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	k, err := p.machine.open()
	if err != nil {
		return err
	}
	defer k.close()
	all, err := k.read(ctx)
	if err != nil {
		return err
	}
	for _, of := range families {
		v := view{services: all.services, others: all.addrs.of(of).others, named: named(maps.All(all.sets[of].entries)), parked: p.parked}
		if v.awake, err = catches(ctx, p.machine.ruled(ctx, of)); err != nil {
			return err
		}
		for e, n := range all.sets[of].entries {
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
func catches(ctx context.Context, tools []iptables.Tool) (bool, error) {
	for _, tool := range tools {
		tables, err := tool.SaveIf(ctx, isOurs, "nat")
		if err != nil {
			return false, err
		}
		for _, rules := range tables {
			if slices.ContainsFunc(rules, func(r iptables.Rule) bool { return r.Target() == wayIn }) {
				return true, nil
			}
		}
	}
	return false, nil
}

// A view is what there is to be told, in one family.
type view struct {
	services map[serviceKey]state
	others   []netip.Addr
	named    map[serviceKey]bool // addresses and ports that frontends name, and so take from node ports
	parked   *parked
	awake    bool // else no destination has weight, and all are told that would
}

// served is the frontend that an entry registers.
func (v *view) served(e entry, n note) (sdk.Served, bool) {
	name, ok := e.owner(n)
	kind, registered := kindOf(e.set, n)
	if !ok || !registered {
		return sdk.Served{}, false
	}
	f := sdk.Frontend{Kind: kind, Addr: netip.AddrPortFrom(e.addr, e.port), Policy: sdk.Cluster}
	if strings.HasSuffix(n.comment, " "+sdk.Local.String()) {
		f.Policy = sdk.Local
	}
	at := e.key()
	if kind == sdk.NodePort && !strings.Contains(n.comment, " "+sdk.NodePort.String()) {
		f.Addr = netip.AddrPortFrom(iptables.Unspecified(e.family), e.port)
		at = v.nodePort(e.family, name.Protocol, e.port)
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

// named returns what the entries of one family name.
func named(entries iter.Seq2[entry, note]) map[serviceKey]bool {
	all := make(map[serviceKey]bool)
	for e, n := range entries {
		if kind, registered := kindOf(e.set, n); registered && kind != sdk.NodePort {
			all[e.key()] = true
		}
	}
	return all
}

// nodePort is a virtual service of a node port: but for those that another frontend names, they
// are all alike.
func (v *view) nodePort(f sdk.Family, p sdk.Protocol, port uint16) serviceKey {
	for _, addr := range v.others {
		at := serviceKey{family: f, protocol: p, addr: netip.AddrPortFrom(addr, port)}
		if v.named[at] {
			continue
		}
		_, there := v.services[at]
		if _, left := v.parked.at(at); there || left {
			return at
		}
	}
	return serviceKey{}
}

// endpoints are where new connections go, or would if this dataplane were active.
func (v *view) endpoints(at serviceKey) []netip.AddrPort {
	s := v.services[at]
	if v.awake {
		return s.serving.list()
	}
	if wanted, parked := v.parked.at(at); parked {
		return wanted
	}
	return slices.SortedFunc(maps.Keys(s.weights()), netip.AddrPort.Compare)
}

// parked is what cannot be seen in the kernel while no destination has weight. A role other than
// Active leaves out virtual services that at an address of the node would catch packets; and
// destinations that have gone, and still have connections, look like those that are wanted.
// Inspect tells what would be there if the role were Active.
type parked struct {
	mu    sync.Mutex // guards destinations: Inspect runs beside the calls that write
	dests map[serviceKey]dests
}

// note notes what the kernel does not show of pieces that take the place of others.
func (p *parked) note(role sdk.Role, had, placed map[sdk.Name]*piece) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range placed {
		for _, s := range had[name].list() {
			delete(p.dests, s.at)
		}
	}
	for _, piece := range placed {
		for _, s := range piece.list() {
			if role != sdk.Active && !s.covered && (!s.here || len(s.drained()) > 0) {
				p.dests[s.at] = s.dests
			}
		}
	}
}

// at are the destinations that are wanted of a virtual service which is left out, or has others too.
func (p *parked) at(at serviceKey) ([]netip.AddrPort, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	dests, ok := p.dests[at]
	return dests.list(), ok
}

// Trace walks a packet through the rules of the node. Where IPVS takes it, the walk ends.
func (p *plugin) Trace(ctx context.Context, packet sdk.Packet) (sdk.Traced, error) {
	return hooks.Trace(ctx, packet, "")
}
