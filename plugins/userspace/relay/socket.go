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

// A server is the TCP side of one address: connections to it get an endpoint of its
// present target.
type server struct {
	relay  *Relay
	at     netip.AddrPort
	target atomic.Pointer[Target]
}

func (s *server) Serve(t *Target)   { s.target.Store(t) }
func (s *server) Target() *Target   { return s.target.Load() }
func (s *server) Resume() bool      { return false }
func (s *server) EndpointsChanged() {} // an established connection outlives its endpoint's place in the list

// A tcpSocket listens at one address.
type tcpSocket struct {
	server
	listener *listener
}

func (s *tcpSocket) Serve(t *Target) {
	s.target.Store(t)
	s.listener.start(s.accept)
}

func (s *tcpSocket) accept(c *net.TCPConn) (*server, sdk.Caller) {
	return &s.server, s.relay.node.Load().caller(remote(c), "")
}

func (s *tcpSocket) Drain() bool  { s.Close(); return false } // connections have sockets of their own
func (s *tcpSocket) Port() uint16 { return s.listener.port() }
func (s *tcpSocket) Close()       { s.listener.Close() }

// keepAlive finds out in two minutes that one end is gone without a word, so that the
// other is not held for ever.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

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

// wait sleeps because of err. It is false when ctx has ended.
func (b *backoff) wait(ctx context.Context, err error) bool {
	if b.delay == 0 {
		b.delay = minBackoff
		b.relay.log.Load().Warn("cannot accept; backing off", "at", b.at, "err", err, "try", advice(err))
	}
	now := b.delay
	b.delay = min(2*b.delay, maxBackoff)
	return sleep(ctx, now)
}

// sleep is false when ctx has ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
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
