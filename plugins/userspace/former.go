// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// This file is for ports that rules redirected TCP to, and that no socket has any more.
// When a connection was reset by our side, or its SYN came while no process listened, the
// kernel goes on redirecting the next one from the client's port there, for 10 s and for
// 120 s, and anew with each attempt: it would be refused for as long as the client tries.

// sharedPorts are those of the listeners that all TCP frontends share, by family.
type sharedPorts map[sdk.Family]relay.Ports

// sharedPorts are those that are open now.
func (d *Dataplane) sharedPorts() sharedPorts {
	all := make(sharedPorts)
	if d.way != nil {
		for _, s := range d.way.rules.sides {
			all[s.Family()] = d.way.portals.Ports(s.Family())
		}
	}
	return all
}

// forgetFailed makes the kernel forget what it would redirect to ports where no socket is.
func (d *Dataplane) forgetFailed(closed sharedPorts) {
	own := d.ground.own
	for family, ports := range closed {
		n, err := conntrack.ForgetFailed(family, func(reply netip.AddrPort) bool {
			addr := reply.Addr()
			return slices.Contains(ports[:], reply.Port()) && (own[addr] || addr.IsLoopback())
		})
		if err != nil {
			d.status.log.Load().Warn("clients that were reset or not answered may be refused for a while if they use their port again", "err", err)
		} else if n > 0 {
			d.status.log.Load().Info("forgot tcp connections that were reset or not answered", "family", family, "connections", n)
		}
	}
}

// forgetFormer does so for the ports of a process before this one, once they are closed:
// while it drains, its connections go on.
func (d *Dataplane) forgetFormer(ctx context.Context) {
	if !d.writes() || d.role != sdk.Active {
		return
	}
	maps.DeleteFunc(d.way.former, func(f sdk.Family, former relay.Ports) bool {
		if former == d.way.portals.Ports(f) {
			return true // they are ours now
		}
		for _, port := range former {
			at := netip.AddrPortFrom(everywhere[index(f)], port)
			if port != 0 && relay.Probe(ctx, sdk.TCP, at) != nil {
				return false
			}
		}
		d.forgetFailed(sharedPorts{f: former})
		return true
	})
}
