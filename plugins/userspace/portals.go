// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
)

// Portals are the other way to reach the relay: rules in the kernel lead callers of
// every frontend, whatever its address, to few sockets. TCP comes in by three of
// each family, for pods, for the node and for others; the kernel says where the
// caller meant to go. A frontend of UDP has a socket of its own.
type portals struct {
	relay *relay
	to    [2]atomic.Pointer[netip.Addr] // where rules send packets to, by family

	mu    sync.RWMutex // guards what follows; connections take it to read
	doors [2][3]listener

	// former are the ports of the doors that a process before us had, which ended
	// without a word: callers are on their way there.
	former [2][3]uint16
	found  map[place]*portal // TCP, by where callers mean to go
}

func newPortals(r *relay) *portals { return &portals{relay: r, found: make(map[place]*portal)} }

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
func (p *portals) open(ctx context.Context, at place) (socket, error) {
	family := sdk.FamilyOf(at.addr.Addr())
	if at.protocol == sdk.UDP {
		s, err := p.relay.openUDP(ctx, at, netip.AddrPortFrom(*p.to[index(family)].Load(), 0))
		if err != nil {
			return nil, err
		}
		if err := hearDevices(s.conn); err != nil {
			s.shut()
			return nil, err
		}
		s.hearsDevices = true
		return s, nil
	}
	if err := p.openDoors(ctx, family); err != nil {
		return nil, err
	}
	s := &portal{portals: p, desk: desk{relay: p.relay, at: at}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found[at] = s
	return s, nil
}

// openDoors opens the sockets for TCP, if they are not open.
func (p *portals) openDoors(ctx context.Context, f sdk.Family) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for from := range p.doors[index(f)] {
		door := &p.doors[index(f)][from]
		if *door != nil {
			continue
		}
		l, err := p.openDoor(ctx, f, sdk.Origin(from))
		if err != nil {
			return fmt.Errorf("listen for what rules lead here: %w", err)
		}
		*door = l
		l.begin(func(a arrival) (*desk, sdk.Caller) { return p.receive(a, sdk.Origin(from)) })
	}
	return nil
}

// openDoor opens one at the port where it was before, if that is free, else at any.
func (p *portals) openDoor(ctx context.Context, f sdk.Family, from sdk.Origin) (listener, error) {
	every := place{sdk.TCP, netip.AddrPortFrom(everywhere[index(f)], 0)}
	if port := p.former[index(f)][from]; port != 0 {
		former := place{sdk.TCP, netip.AddrPortFrom(every.addr.Addr(), port)}
		err := probe(ctx, former) // who still has it shares it with nobody
		if err == nil {
			return p.relay.listen(ctx, former)
		}
		p.relay.log.Load().Info("a door opens elsewhere than before", "port", port, "why", err)
	}
	return p.relay.listen(ctx, every)
}

// ports are those of the sockets for TCP.
func (p *portals) ports(f sdk.Family) (ports [3]uint16) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for from, l := range p.doors[index(f)] {
		if l != nil {
			ports[from] = l.port()
		}
	}
	return ports
}

// close ends the sockets that all share. Those who wait in them are turned away.
func (p *portals) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.doors {
		for from, l := range p.doors[i] {
			if l != nil {
				l.Close()
				p.doors[i][from] = nil
			}
		}
	}
	clear(p.found)
}

// receive is whose a connection is that came in by the door for callers from there.
func (p *portals) receive(a arrival, from sdk.Origin) (*desk, sdk.Caller) {
	to, err := a.meant()
	if err != nil {
		return nil, sdk.Caller{}
	}
	s := p.find(to)
	if s == nil {
		return nil, sdk.Caller{}
	}
	return &s.desk, sdk.Caller{Addr: a.remote().Unmap().WithZone(""), From: from}
}

// find is the portal at to: one that names the address, or that of a node port.
func (p *portals) find(to netip.AddrPort) *portal {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if s := p.found[place{sdk.TCP, to}]; s != nil {
		return s
	}
	family := sdk.FamilyOf(to.Addr())
	return p.found[place{sdk.TCP, netip.AddrPortFrom(everywhere[index(family)], to.Port())}]
}

// A portal is the TCP frontend at one place. It has no socket of its own.
type portal struct {
	desk
	portals *portals
}

func (s *portal) give(t *target) { s.whose.Store(t) }
func (s *portal) follow()        {}
func (s *portal) retire() bool   { s.shut(); return false }
func (s *portal) resume() bool   { return false }

func (s *portal) shut() {
	s.portals.mu.Lock()
	defer s.portals.mu.Unlock()
	if s.portals.found[s.at] == s {
		delete(s.portals.found, s.at)
	}
}

// stands reports whether the doors do.
func (s *portal) stands() error {
	s.portals.mu.RLock()
	defer s.portals.mu.RUnlock()
	var errs []error
	for _, l := range s.portals.doors[index(sdk.FamilyOf(s.at.addr.Addr()))] {
		if l == nil {
			return net.ErrClosed
		}
		errs = append(errs, l.stands())
	}
	return errors.Join(errs...)
}
