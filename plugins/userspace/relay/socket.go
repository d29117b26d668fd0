// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"sync/atomic"

	"github.com/pointsman/pointsman/sdk"
)

// A Socket receives what is sent to one address.
type Socket interface {
	// Serve gives what is received from now on to t. The first call begins to accept;
	// clients that came before wait in the kernel.
	Serve(t *Target)

	// Target returns what Serve was called with last. Nil: it was not called yet.
	Target() *Target

	// EndpointsChanged says that the target's Service has another value. UDP flows to
	// endpoints that no longer serve end, so that the next datagram goes elsewhere.
	EndpointsChanged()

	// Drain accepts nothing new. It returns true while the Socket stays open for what it
	// has begun: UDP flows are answered through it. Then Drain is called again later, or
	// Resume undoes it, or Close.
	Drain() bool

	// Resume undoes Drain. It returns false if the Socket was closed meanwhile.
	Resume() bool

	// Alive returns an error if the kernel no longer has the Socket.
	Alive() error

	// Port returns the port at which the kernel delivers to the Socket.
	Port() uint16

	// Close closes the Socket. UDP flows end; TCP connections do not.
	Close()
}

// A Target is what a Socket receives for.
type Target struct {
	Service  *Service
	Frontend sdk.Frontend
}

// A listener accepts TCP connections from start to Close. Clients that come before start
// wait in the kernel.
type listener interface {
	start(acceptor)
	port() uint16
	alive() error
	Close() error
}

// An acceptor says which server an accepted connection is for, and where its client is.
// Without a server the connection is reset.
type acceptor func(conn) (*server, sdk.Caller)

// A conn is a connection that was just accepted.
type conn interface {
	remote() netip.Addr                // of the client
	original() (netip.AddrPort, error) // where the client sent it, before a rule redirected it
}

// A server is the TCP side of one address: connections to it get an endpoint of its
// present target.
type server struct {
	relay  *Relay
	at     netip.AddrPort
	target atomic.Pointer[Target]
}

// A tcpSocket listens at one address.
type tcpSocket struct {
	server
	listener listener
}

func (s *tcpSocket) Serve(t *Target) {
	s.target.Store(t)
	s.listener.start(s.accept)
}

func (s *tcpSocket) accept(c conn) (*server, sdk.Caller) {
	return &s.server, s.relay.node.Load().caller(c.remote(), "")
}

func (s *tcpSocket) Target() *Target   { return s.target.Load() }
func (s *tcpSocket) EndpointsChanged() {}                          // an established connection outlives its endpoint's place in the list
func (s *tcpSocket) Drain() bool       { s.Close(); return false } // connections have sockets of their own
func (s *tcpSocket) Resume() bool      { return false }
func (s *tcpSocket) Alive() error      { return s.listener.alive() }
func (s *tcpSocket) Port() uint16      { return s.listener.port() }
func (s *tcpSocket) Close()            { s.listener.Close() }
