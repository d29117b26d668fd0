// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
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
		awake, err := catches(ctx, p.machine.ruled(ctx, of))
		if err != nil {
			return err
		}
		role := sdk.Standby // then no destination has weight, and all are told that would
		if awake {
			role = sdk.Active
		}
		pieces, _ := parse(all.ours(of, nil), all.addrs.of(of).others, role)
		for name, had := range pieces {
			wanted := p.parked.piece(name)
			for _, m := range had.members {
				served, ok := servedBy(name, m)
				if !ok {
					continue
				}
				served.Endpoints = endpoints(m, had, wanted, awake)
				if err := tell(served); err != nil {
					return err
				}
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

// servedBy is the frontend that an entry registers.
func servedBy(name sdk.Name, m member) (sdk.Served, bool) {
	kind, registered := kindOf(m.set, m.note)
	f := sdk.Frontend{Kind: kind, Addr: netip.AddrPortFrom(m.addr, m.port), Policy: sdk.Cluster}
	if strings.HasSuffix(m.comment, " "+sdk.Local.String()) {
		f.Policy = sdk.Local
	}
	if m.isNodePort() {
		f.Addr = netip.AddrPortFrom(iptables.Unspecified(m.family), m.port)
	}
	return sdk.Served{Name: name, Frontend: f}, registered
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

// endpoints are where new connections to a registered frontend go, or would if this dataplane were active. had is what the kernel has of the
// Service, and wanted what is parked of it.
func endpoints(m member, had, wanted *piece, awake bool) []netip.AddrPort {
	s, there := had.frontend(m)
	if awake {
		return s.state.serving.list()
	}
	w, parked := wanted.frontend(m)
	if !there {
		return w.dests.list()
	}
	all, want := slices.SortedFunc(maps.Keys(s.state.weights()), netip.AddrPort.Compare), w.dests.list()
	return slices.DeleteFunc(all, func(dest netip.AddrPort) bool { return parked && !contains(want, dest) })
}

// frontend returns the virtual server that an entry registers. Those of a node port are all alike.
func (p *piece) frontend(m member) (server, bool) {
	for _, s := range p.list() {
		if !s.covered && (s.any && m.isNodePort() && s.at.addr.Port() == m.port || s.at == m.entry.key()) {
			return s, true
		}
	}
	return server{}, false
}

// parked has the pieces of which the kernel does not show everything, while the role is not Active. It leaves out virtual
// services that at an address of the node would catch packets; and destinations that have gone, and still have connections,
// look like those that are wanted. Inspect tells what would be there if the role were Active.
type parked struct {
	mu     sync.Mutex // guards pieces: Inspect runs beside the calls that write
	pieces map[sdk.Name]*piece
}

// set stores pieces that were put, unless the role is Active.
func (p *parked) set(role sdk.Role, placed map[sdk.Name]*piece) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, piece := range placed {
		if p.pieces[name] = piece; piece == nil || role == sdk.Active {
			delete(p.pieces, name)
		}
	}
}

func (p *parked) piece(name sdk.Name) *piece {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pieces[name]
}

// Trace walks a packet through the rules of the node. Where IPVS takes it, the walk ends.
func (p *plugin) Trace(ctx context.Context, packet sdk.Packet) (sdk.Traced, error) {
	return hooks.Trace(ctx, packet, "")
}
