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

// A Socket receives connections or datagrams to one address.
type Socket interface {
	// Serve sets the target of new connections and datagrams. The first call begins to accept; until then clients wait
	// in the kernel.
	Serve(t *Target)

	// Target returns the target that was set last, or nil.
	Target() *Target

	// EndpointsChanged tells the Socket that the value of the target's Service has changed. UDP flows to endpoints that no
	// longer serve end, and the next datagram begins a flow to another endpoint.
	EndpointsChanged()

	// Drain stops the Socket after it has accepted the connections and datagrams that wait in it. It returns true while
	// the Socket stays open for the replies of UDP flows. Then the caller calls Drain again later, or Resume, or Close.
	Drain() bool

	// Resume undoes Drain. It returns false if the Socket is closed already.
	Resume() bool

	// Port returns the local port of the Socket, or 0 for a TCP Socket of Redirected.
	Port() uint16

	// Close closes the Socket. UDP flows end; TCP connections continue.
	Close()
}

// A Target is the frontend of a Service that a Socket serves.
type Target struct {
	Service  *Service
	Frontend sdk.Frontend
}

// A server is the part of a Socket that connections use: each gets an endpoint of the current target.
type server struct {
	relay  *Relay
	at     netip.AddrPort
	target atomic.Pointer[Target]
}

func (s *server) Serve(t *Target)   { s.target.Store(t) }
func (s *server) Target() *Target   { return s.target.Load() }
func (s *server) Resume() bool      { return false }
func (s *server) EndpointsChanged() {} // established connections continue

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

func (s *tcpSocket) Drain() bool  { s.Close(); return false } // accepted connections have their own sockets
func (s *tcpSocket) Port() uint16 { return s.listener.port() }
func (s *tcpSocket) Close()       { s.listener.Close() }

// keepAlive detects within two minutes that a client or endpoint has disappeared.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// A backoff waits after temporary errors, such as too many open files. It logs only the first one. Meanwhile clients wait
// in the kernel.
type backoff struct {
	relay   *Relay
	at      string
	failing bool
}

// wait sleeps after an error. It returns false if ctx is done.
func (b *backoff) wait(ctx context.Context, err error) bool {
	if !b.failing {
		b.failing = true
		b.relay.log.Load().Warn("cannot accept; backing off", "at", b.at, "err", err, "try", advice(err))
	}
	return sleep(ctx, 50*time.Millisecond)
}

// sleep returns false if ctx is done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// reset records a success.
func (b *backoff) reset() {
	if b.failing {
		b.failing = false
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
