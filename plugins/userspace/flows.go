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

// Flows are counted by the relay: see plugin.Report.
func (r *redirected) Flows(map[sdk.Name]sdk.Service, bool) (int, error) { return 0, nil }

// Forget ends the kernel's UDP flows to these Services that lead nowhere. One that leads to
// this node is the relay's, and stays, unless the socket that it led to was another: the
// kernel remembers where it sent a client before, for longer than sockets live.
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
		delete(r.fresh, svc.Name)
	}
	return n, nil
}

// ForgetEarly deletes connections to these Services that began before they were there.
func (r *redirected) ForgetEarly(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	return conntrack.ForgetEarly(of, services, r.takesNodePorts, step)
}

func (r *redirected) takesNodePorts(addr netip.Addr) bool {
	m := r.machine
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	return slices.ContainsFunc(m.takes, in) || frame.OnLink(addr) && m.node.TakesNodePorts(addr)
}

// servedHere is a Service with those that serve it: this node too, if no socket of it is new.
func (r *redirected) servedHere(svc sdk.Service) sdk.Service {
	if !r.fresh[svc.Name] && len(svc.Cluster)+len(svc.Local)+len(svc.Serving) > 0 {
		svc.Serving = append(slices.Clone(svc.Serving), r.bound)
	}
	return svc
}

// forgetFailed makes the kernel forget connections that it would redirect to ports where no
// socket is any more. When one was reset by this node, or its SYN came while no process
// listened, the kernel goes on redirecting the next one from the client's port there, for 10 s
// and for 120 s, and anew with each attempt: it would be refused for as long as the client tries.
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
		p.log.Warn("clients that were reset or not answered may be refused for a while if they use their port again", "err", err)
	} else if n > 0 {
		p.log.Info("forgot tcp connections that were reset or not answered", "family", of, "connections", n)
	}
}

// forgetFormer does so for the ports of a process before this one, once they are closed:
// while it drains, its connections go on.
func (r *redirected) forgetFormer(ctx context.Context) {
	switch {
	case r.role != sdk.Active || r.former == relay.Ports{}:
		return
	case r.former == r.portals.Ports():
		r.former = relay.Ports{} // they are this process's now
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
