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

// Redirected opens Sockets for addresses of one family that the machine need not have: rules of the
// kernel redirect what is sent there to this process.
//
// All TCP Sockets share three listeners, because the kernel remembers where
// a redirected connection was first sent to. Which of the three it came in by says where
// its client is: on the node, on a pod or elsewhere. A UDP Socket has a port of its own.
type Redirected struct {
	relay *Relay
	every netip.Addr // stands for all addresses of the family

	mu        sync.RWMutex // guards all below; connections take it to read
	listeners [3]*listener // by sdk.Origin
	preferred Ports
	redirects map[netip.AddrPort]*redirect // TCP, by where clients send to
}

// Ports are those of the shared listeners, by sdk.Origin. Zero: not open.
type Ports = [3]uint16

// NewRedirected returns one without sockets, of the family of every, which stands for all addresses. Close ends it.
func (r *Relay) NewRedirected(every netip.Addr) *Redirected {
	return &Redirected{relay: r, every: every, redirects: make(map[netip.AddrPort]*redirect)}
}

// Prefer has the shared listeners open at these ports if they are free.
// Connections on their way to a process that had them before then find this one.
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

// ListenUDP opens a Socket for datagrams sent to at, which rules redirect to the
// Socket's port at an address of this machine. It tells clients apart by the device that
// a datagram came in by too.
func (x *Redirected) ListenUDP(ctx context.Context, at, to netip.AddrPort) (Socket, error) {
	return x.relay.listenUDP(ctx, at, to, true)
}

// ListenTCP opens a Socket for connections sent to at, which rules redirect to one of
// Ports. At an unspecified address it is for those to its port at any address, unless
// another Socket names that address.
func (x *Redirected) ListenTCP(ctx context.Context, at netip.AddrPort) (Socket, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.listen(ctx); err != nil {
		return nil, fmt.Errorf("listen for redirected connections: %w", err)
	}
	s := &redirect{redirected: x, server: server{relay: x.relay, at: at}}
	x.redirects[at] = s
	return s, nil
}

// listen opens the shared listeners that are not open. The caller holds mu.
func (x *Redirected) listen(ctx context.Context) error {
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

// listenAt opens a listener at the preferred port if that is free, else at any.
func (x *Redirected) listenAt(ctx context.Context, preferred uint16) (*listener, error) {
	if preferred != 0 {
		at := netip.AddrPortFrom(x.every, preferred)
		err := bindOnce(at) // a process that still has the port shares it with none
		if err == nil {
			return x.relay.listenTCP(ctx, at)
		}
		x.relay.log.Load().Info("a redirected port is another than before", "port", preferred, "why", err)
	}
	return x.relay.listenTCP(ctx, netip.AddrPortFrom(x.every, 0))
}

// accept is the acceptor of the listener for clients from there.
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

// find returns the Socket for connections to an address: one that names it, or the one
// that has its port at every address. Nil: there is none.
func (x *Redirected) find(to netip.AddrPort) *redirect {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if s := x.redirects[to]; s != nil {
		return s
	}
	return x.redirects[netip.AddrPortFrom(x.every, to.Port())]
}

// Close closes the shared listeners. Clients that wait in them are reset.
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

// A redirect is the Socket for TCP connections to one address. The listeners are shared.
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
