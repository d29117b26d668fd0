// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// Portals are the other way to reach the relay: rules in the kernel redirect callers of
// every frontend, whatever its address, to few sockets at one address of this machine.
type portals struct {
	*relay.Redirected
	to [2]atomic.Pointer[netip.Addr] // where rules send packets to, by family
}

func newPortals(r *relay.Relay) *portals { return &portals{Redirected: r.NewRedirected()} }

// everywhere stands for the addresses that take node ports: which those are, the
// rules say.
var everywhere = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// families in the order of their indexes.
var families = [2]sdk.Family{sdk.IPv4, sdk.IPv6}

func index(f sdk.Family) int { return slices.Index(families[:], f) }

// settle chooses the addresses that rules send packets to: those so far for as
// long as the machine has them. It reports the families in which it changed.
func (p *portals) settle(g *ground) (moved []sdk.Family) {
	for i, family := range families {
		was := p.to[i].Load()
		if was != nil && g.has(*was) && !was.IsLoopback() {
			continue
		}
		next := g.reachable(family)
		if was == nil || *was != next {
			p.to[i].Store(&next)
			moved = append(moved, family)
		}
	}
	return moved
}

// has reports whether an interface has addr.
func (g *ground) has(addr netip.Addr) bool {
	return slices.ContainsFunc(g.addresses, func(a address) bool { return a.prefix.Addr() == addr && !a.foreign })
}

// reachable is an address of this machine to which packets from elsewhere can be
// sent: one that Kubernetes knows it by, or any. Without one only the node itself
// can be served.
func (g *ground) reachable(f sdk.Family) netip.Addr {
	for _, addr := range g.node.Addrs {
		if sdk.FamilyOf(addr) == f && !addr.IsLoopback() && g.has(addr) {
			return addr
		}
	}
	for _, fits := range []func(netip.Addr) bool{netip.Addr.IsGlobalUnicast, netip.Addr.IsLinkLocalUnicast} {
		for _, a := range g.addresses {
			if addr := a.prefix.Addr(); sdk.FamilyOf(addr) == f && fits(addr) && !duty.OnLink(addr) && !a.foreign {
				return addr
			}
		}
	}
	if f == sdk.IPv6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// open makes a socket for what is sent to at.
func (p *portals) open(ctx context.Context, at place) (relay.Socket, error) {
	if at.protocol == sdk.UDP {
		return p.ListenUDP(ctx, at.addr, *p.to[index(sdk.FamilyOf(at.addr.Addr()))].Load())
	}
	return p.ListenTCP(ctx, at.addr)
}
