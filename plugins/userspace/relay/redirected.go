// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// Redirected opens Sockets for addresses of one family that the machine need not have. Rules in the kernel redirect packets
// to these addresses to this process.
//
// All TCP Sockets share three listeners: one for clients on the node, one for clients on its pods, and one for others. The
// kernel knows the original destination of each connection. A UDP Socket has its own port.
type Redirected struct {
	relay *Relay
	every netip.Addr // the unspecified address of the family

	mu        sync.RWMutex // guards the fields below; connections take it for reading
	listeners [3]*listener // by sdk.Origin
	preferred Ports
	redirects map[netip.AddrPort]*redirect // TCP Sockets by original destination
}

// Ports are the ports of the shared listeners, by sdk.Origin; 0 if a listener is not open.
type Ports = [3]uint16

// NewRedirected returns a Redirected without sockets. every is the unspecified address of its family. Close ends it.
func (r *Relay) NewRedirected(every netip.Addr) *Redirected {
	return &Redirected{relay: r, every: every, redirects: make(map[netip.AddrPort]*redirect)}
}

// Prefer makes the shared listeners open at these ports if they are free. Connections that rules redirect there already, as
// set by an earlier process, then reach this one.
func (x *Redirected) Prefer(ports Ports) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.preferred = ports
}

// Ports returns the ports of the shared listeners, to which rules must redirect TCP.
func (x *Redirected) Ports() (ports Ports) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for from, l := range x.listeners {
		if l != nil {
			ports[from] = l.port()
		}
	}
	return ports
}

// ListenUDP opens a Socket at to, an address of this machine, for datagrams that rules redirect from at. Pods may also be
// recognized by the device by which a datagram arrives.
func (x *Redirected) ListenUDP(ctx context.Context, at, to netip.AddrPort) (Socket, error) {
	return x.relay.listenUDP(ctx, at, to, true)
}

// ListenTCP opens a Socket for connections that rules redirect from at to one of Ports. If the address is unspecified, the
// Socket serves its port at all addresses for which there is no other Socket.
func (x *Redirected) ListenTCP(ctx context.Context, at netip.AddrPort) (Socket, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.listenLocked(ctx); err != nil {
		return nil, fmt.Errorf("listen for redirected connections: %w", err)
	}
	s := &redirect{redirected: x, server: server{relay: x.relay, at: at}}
	x.redirects[at] = s
	return s, nil
}

// listenLocked opens the shared listeners that are not open.
func (x *Redirected) listenLocked(ctx context.Context) error {
	for i := range x.listeners {
		if x.listeners[i] != nil {
			continue
		}
		l, err := x.listenAt(ctx, x.preferred[i])
		if err != nil {
			return err
		}
		x.listeners[i] = l
		l.start(func(c *net.TCPConn) (*server, sdk.Caller) { return x.accept(c, sdk.Origin(i)) })
	}
	return nil
}

// listenAt opens a listener at the preferred port if that is free, else at any port. Without SO_REUSEPORT it is not free
// while another process has it.
func (x *Redirected) listenAt(ctx context.Context, preferred uint16) (*listener, error) {
	l, err := x.relay.listenTCP(ctx, netip.AddrPortFrom(x.every, preferred), nil)
	if err == nil || preferred == 0 {
		return l, err
	}
	x.relay.log.Load().Info("the former port of redirected connections is not free", "port", preferred, "why", err)
	return x.relay.listenTCP(ctx, netip.AddrPortFrom(x.every, 0), nil)
}

// accept implements acceptor for the listener for an origin.
func (x *Redirected) accept(c *net.TCPConn, from sdk.Origin) (*server, sdk.Caller) {
	to, err := originalDestination(c)
	if err != nil {
		return nil, sdk.Caller{}
	}
	s := x.find(to)
	if s == nil {
		return nil, sdk.Caller{}
	}
	return &s.server, sdk.Caller{Addr: remote(c).Unmap().WithZone(""), From: from}
}

// find returns the Socket for an original destination, or nil.
func (x *Redirected) find(to netip.AddrPort) *redirect {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if s := x.redirects[to]; s != nil {
		return s
	}
	return x.redirects[netip.AddrPortFrom(x.every, to.Port())]
}

// Close closes the shared listeners. Waiting clients are reset.
func (x *Redirected) Close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, l := range x.listeners {
		if l != nil {
			l.Close()
			x.listeners[i] = nil
		}
	}
	clear(x.redirects)
}

// A redirect is the Socket for TCP connections to one original destination.
type redirect struct {
	server
	redirected *Redirected
}

func (s *redirect) Drain() bool  { s.Close(); return false }
func (s *redirect) Port() uint16 { return 0 } // see Ports

func (s *redirect) Close() {
	x := s.redirected
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.redirects[s.at] == s {
		delete(x.redirects, s.at)
	}
}
