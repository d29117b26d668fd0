// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// This file is for ports that rules redirected TCP to, and that no socket has any more.
// When a connection was reset by this node, or its SYN came while no process listened, the
// kernel goes on redirecting the next one from the client's port there, for 10 s and for
// 120 s, and anew with each attempt: it would be refused for as long as the client tries.

// forgetFailed makes the kernel forget what it would redirect to ports where no socket is.
func (r *redirected) forgetFailed(closed relay.Ports) {
	own := r.machine.own
	n, err := conntrack.ForgetFailed(r.family, func(reply netip.AddrPort) bool {
		addr := reply.Addr()
		return slices.Contains(closed[:], reply.Port()) && (own[addr] || addr.IsLoopback())
	})
	if err != nil {
		r.log.Warn("clients that were reset or not answered may be refused for a while if they use their port again", "err", err)
	} else if n > 0 {
		r.log.Info("forgot tcp connections that were reset or not answered", "family", r.family, "connections", n)
	}
}

// forgetFormer does so for the ports of a process before this one, once they are closed:
// while it drains, its connections go on.
func (r *redirected) forgetFormer(ctx context.Context) {
	switch {
	case r.role != sdk.Active || r.former == relay.Ports{}:
		return
	case r.former == r.portals.Ports(r.family):
		r.former = relay.Ports{} // they are this process's now
		return
	}
	for _, port := range r.former {
		at := netip.AddrPortFrom(iptables.Unspecified(r.family), port)
		if port != 0 && relay.Probe(ctx, sdk.TCP, at) != nil {
			return
		}
	}
	r.forgetFailed(r.former)
	r.former = relay.Ports{}
}
