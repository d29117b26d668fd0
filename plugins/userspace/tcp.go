// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// waits are how long each endpoint that is tried may take to answer. After them
// the caller is turned away.
var waits = [...]time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// keepAlive finds out in two minutes that one end is gone without a word, so that
// the other is not held for ever.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// A desk is where connections to one place are dealt with.
type desk struct {
	relay *relay
	at    place
	whose atomic.Pointer[target]
}

func (d *desk) target() *target { return d.whose.Load() }

// A tcpSocket listens at one place.
type tcpSocket struct {
	desk
	listener *net.TCPListener
	accepts  sync.Once
}

func (r *relay) openTCP(ctx context.Context, p place) (socket, error) {
	l, err := listen(ctx, p)
	if err != nil {
		return nil, err
	}
	return &tcpSocket{desk: desk{relay: r, at: p}, listener: l}, nil
}

func listen(ctx context.Context, p place) (*net.TCPListener, error) {
	l := net.ListenConfig{Control: share}
	keepAll(&l)
	l.SetMultipathTCP(false) // an abort must be a reset
	listener, err := l.Listen(ctx, network(p), p.addr.String())
	if err != nil {
		return nil, err
	}
	return listener.(*net.TCPListener), nil
}

// give makes t the one whom connections are for. The first begins to accept:
// callers who came since the socket was opened have waited in the kernel.
func (s *tcpSocket) give(t *target) {
	s.whose.Store(t)
	s.accepts.Do(func() {
		if s.relay.crowd.enter(s.listener) {
			go s.relay.accept(s.listener, s.at, func(conn *net.TCPConn) {
				s.serve(conn, s.relay.ground.Load().caller(remote(conn), ""))
			})
		}
	})
}

func (s *tcpSocket) follow()       {}                         // an established connection outlives its endpoint's place in the list
func (s *tcpSocket) retire() bool  { s.shut(); return false } // connections have sockets of their own
func (s *tcpSocket) resume() bool  { return false }
func (s *tcpSocket) shut()         { s.listener.Close() }
func (s *tcpSocket) stands() error { return standing(s.listener) }

// accept takes connections in until the listener is closed.
func (r *relay) accept(l *net.TCPListener, at place, serve func(*net.TCPConn)) {
	defer r.crowd.leave(l)
	pause := pause{log: r, at: at}
	for {
		conn, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !pause.after(r.crowd.context(), err) {
				return
			}
			continue
		}
		pause.over()
		if r.crowd.enter(conn) {
			go serve(conn)
		}
	}
}

// serve is the life of one connection. It ends when both ends have, or when the
// crowd is sent home.
func (d *desk) serve(conn *net.TCPConn, from sdk.Caller) {
	r := d.relay
	defer r.crowd.leave(conn)
	r.counts.connections.Add(1)
	up := d.reach(from)
	if up == nil {
		abort(conn)
		return
	}
	if !r.crowd.enter(up) {
		return
	}
	defer r.crowd.leave(up)
	r.counts.open.Add(1)
	defer r.counts.open.Add(-1)
	r.join(conn, up)
}

// reach connects to the endpoint that the caller is to have, or to others in
// turn when it does not answer. Nil: there is none for this caller.
func (d *desk) reach(from sdk.Caller) *net.TCPConn {
	r := d.relay
	ctx := r.crowd.context()
	var tried []netip.AddrPort
	for _, wait := range waits {
		t := d.target()
		if t == nil {
			return nil // it was opened, and is nobody's yet
		}
		ep, verdict := r.choose(t, from, tried)
		if verdict != sdk.Forward {
			return nil
		}
		dialer := r.dialer(wait)
		up, err := dialer.DialContext(ctx, network(d.at), ep.String()) // and not DialTCP, which takes a port before it is known for whom
		if err == nil {
			return up.(*net.TCPConn)
		}
		if ctx.Err() != nil {
			return nil
		}
		r.counts.dialErrors.Add(1)
		r.log.Load().Debug("endpoint does not answer", "service", t.service.name, "endpoint", ep, "err", err)
		tried = append(tried, ep)
	}
	r.counts.unanswered.Add(1)
	return nil
}

func remote(conn *net.TCPConn) netip.Addr {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr()
	}
	return netip.Addr{}
}

// abort ends conn with a reset.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // of a connection that is broken already: then it needs no reset
	conn.Close()
}
