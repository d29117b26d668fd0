// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// Flows returns 0: plugin.Report reports the flows of the relay.
func (r *redirected) Flows(map[sdk.Name]sdk.Service, bool) (int, error) { return 0, nil }

// Forget deletes the conntrack entries of UDP flows to these Services that lead to nothing that serves. Entries that lead
// to this node are the relay's, and stay unless a socket of the Service has a new port: entries outlive sockets.
func (r *redirected) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	var all []sdk.Service
	for _, svc := range services {
		all = append(all, r.servedHere(svc))
	}
	n, err := conntrack.Forget(of, conntrack.Serving(of, all, r.takesNodePorts).Telling(step))
	if err != nil {
		return n, err
	}
	for _, svc := range services {
		delete(r.moved, svc.Name)
	}
	return n, nil
}

// ForgetEarly deletes the conntrack entries of connections to these Services that began before the Services existed.
func (r *redirected) ForgetEarly(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	return conntrack.ForgetEarly(of, services, r.takesNodePorts, step)
}

func (r *redirected) takesNodePorts(addr netip.Addr) bool {
	m := r.machine
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	return slices.ContainsFunc(m.takes, in) || frame.OnLink(addr) && m.node.TakesNodePorts(addr)
}

// servedHere returns a Service with this node among the addresses that serve it, unless one of its sockets has a new port.
func (r *redirected) servedHere(svc sdk.Service) sdk.Service {
	if !r.moved[svc.Name] && len(svc.Cluster)+len(svc.Local)+len(svc.Serving) > 0 {
		svc.Serving = append(slices.Clone(svc.Serving), r.bound)
	}
	return svc
}

// forgetFailed deletes conntrack entries of connections that were redirected to closed ports. After this node reset a
// connection, or its SYN was not answered, the kernel redirects the next connection from the same client port by the old
// entry, for 10 s or 120 s after each attempt, so a client that tries again would be refused each time.
func (p *process) forgetFailed(of sdk.Family, closed []uint16) {
	n := 0
	here, err := p.addresses()
	if err == nil {
		own := newMachine(sdk.Node{}, here).own
		n, err = conntrack.ForgetFailed(of, func(reply netip.AddrPort) bool {
			return slices.Contains(closed, reply.Port()) && (own[reply.Addr()] || reply.Addr().IsLoopback())
		})
	}
	if err != nil {
		p.log.Warn("cannot delete conntrack entries of failed connections; clients that use their port again may be refused for two minutes", "err", err)
	} else if n > 0 {
		p.log.Info("deleted conntrack entries of failed tcp connections", "family", of, "connections", n)
	}
}

// forgetFormer calls forgetFailed for the ports of the process before this one when it has closed them. Until then it
// drains, and its connections continue.
func (r *redirected) forgetFormer(ctx context.Context) {
	switch {
	case r.role != sdk.Active || r.former == relay.Ports{}:
		return
	case r.former == r.portals.Ports():
		r.former = relay.Ports{} // this process has the same ports
		return
	}
	for _, port := range r.former {
		at := netip.AddrPortFrom(iptables.Unspecified(r.family), port)
		if port != 0 && relay.Probe(ctx, sdk.TCP, at) != nil {
			return
		}
	}
	r.forgetFailed(r.family, r.former[:])
	r.former = relay.Ports{}
}
