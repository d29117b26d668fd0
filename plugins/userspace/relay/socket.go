// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

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

	// Drain accepts nothing new but what reached the Socket before. It returns true while the
	// Socket stays open: UDP flows are answered through it. Then Drain is called again later,
	// or Resume undoes it, or Close.
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

func (s *server) Serve(t *Target)   { s.target.Store(t) }
func (s *server) Target() *Target   { return s.target.Load() }
func (s *server) EndpointsChanged() {} // an established connection outlives its endpoint's place in the list
func (s *server) Resume() bool      { return false }

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

func (s *tcpSocket) Drain() bool  { s.Close(); return false } // connections have sockets of their own
func (s *tcpSocket) Alive() error { return s.listener.alive() }
func (s *tcpSocket) Port() uint16 { return s.listener.port() }
func (s *tcpSocket) Close()       { s.listener.Close() }

// dialTimeouts are how long each endpoint that is tried may take to accept; where there
// is only one it has all of that time. After them the client is reset.
var dialTimeouts = [...]time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// keepAlive finds out in two minutes that one end is gone without a word, so that the
// other is not held for ever.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// attempts are the endpoints that are tried for one connection: first the one that its
// client is to have, and others in turn while that does not accept.
type attempts struct {
	server *server
	from   sdk.Caller
	tried  []netip.AddrPort
}

// next returns the endpoint to try now, and how long it may take. It is false if there
// is none for this client.
func (a *attempts) next() (ep netip.AddrPort, timeout time.Duration, ok bool) {
	r := a.server.relay
	target := a.server.target.Load()
	if target == nil {
		return ep, 0, false // the socket is open, and serves nothing yet
	}
	if len(a.tried) == len(dialTimeouts) {
		r.counters.unanswered.Add(1)
		return ep, 0, false
	}
	ep, verdict := r.choose(target, a.from, a.tried)
	if verdict != sdk.Forward {
		return ep, 0, false
	}
	timeout = dialTimeouts[len(a.tried)]
	a.tried = append(a.tried, ep)
	return ep, timeout, true
}

// last is the endpoint that next returned.
func (a *attempts) last() netip.AddrPort { return a.tried[len(a.tried)-1] }

// failed counts that ep, which next returned, did not accept.
func (a *attempts) failed(ep netip.AddrPort, err error) {
	r := a.server.relay
	r.counters.dialErrors.Add(1)
	r.log.Load().Debug("endpoint does not accept", "at", "tcp "+a.server.at.String(), "endpoint", ep, "err", err)
}

// A backoff waits after errors that may pass, such as running out of file descriptors:
// longer each time, and logged once. Meanwhile clients wait in the kernel.
type backoff struct {
	relay *Relay
	at    string
	delay time.Duration // the next one; zero: the last attempt succeeded
}

const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
)

// next returns how long to wait because of err.
func (b *backoff) next(err error) time.Duration {
	if b.delay == 0 {
		b.delay = minBackoff
		b.relay.log.Load().Warn("cannot accept; backing off", "at", b.at, "err", err, "try", advice(err))
	}
	now := b.delay
	b.delay = min(2*b.delay, maxBackoff)
	return now
}

// wait sleeps because of err. It is false when ctx has ended.
func (b *backoff) wait(ctx context.Context, err error) bool {
	timer := time.NewTimer(b.next(err))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// reset says that an attempt succeeded.
func (b *backoff) reset() {
	if b.delay > 0 {
		b.delay = 0
		b.relay.log.Load().Info("accepting again", "at", b.at)
	}
}

func advice(err error) string {
	if outOfFiles(err) {
		return "raise the hard limit of open files of the plugin (ulimit -Hn, LimitNOFILE=)"
	}
	return ""
}

func outOfFiles(err error) bool { return errors.Is(err, errTooMany) || errors.Is(err, errTooManyAll) }
