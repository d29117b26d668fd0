// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/pointsman/pointsman/sdk"
)

// This file carries TCP with package net and goroutines, two for each
// connection: that is how it is done on systems other than Linux.

// A netListener is a listener of package net.
type netListener struct {
	relay *Relay
	at    netip.AddrPort
	tcp   *net.TCPListener
	once  sync.Once
}

// listenPortable opens a netListener.
func (r *Relay) listenPortable(ctx context.Context, at netip.AddrPort) (listener, error) {
	config := net.ListenConfig{Control: reusePort, KeepAliveConfig: keepAlive}
	config.SetMultipathTCP(false) // an abort must be a reset
	l, err := config.Listen(ctx, network(sdk.TCP, at), at.String())
	if err != nil {
		return nil, err
	}
	return &netListener{relay: r, at: at, tcp: l.(*net.TCPListener)}, nil
}

func (l *netListener) start(accept acceptor) {
	l.once.Do(func() {
		if l.relay.group.add(l.tcp) {
			go l.run(accept) // ends when l.tcp is closed
		}
	})
}

func (l *netListener) port() uint16 { return l.tcp.Addr().(*net.TCPAddr).AddrPort().Port() }
func (l *netListener) alive() error { return alive(l.tcp) }
func (l *netListener) Close() error { return l.tcp.Close() }

// run accepts connections until the listener is closed.
func (l *netListener) run(accept acceptor) {
	r := l.relay
	defer r.group.remove(l.tcp)
	backoff := backoff{relay: r, at: "tcp " + l.at.String()}
	for {
		conn, err := l.tcp.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !backoff.wait(r.group.context(), err) {
				return
			}
			continue
		}
		backoff.reset()
		r.receive(netConn{conn}, accept)
	}
}

// A netConn is a connection that no rule can have redirected.
type netConn struct{ *net.TCPConn }

func (c netConn) remote() netip.Addr { return c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr() }
func (c netConn) original() (netip.AddrPort, error) {
	return netip.AddrPort{}, errors.ErrUnsupported
}

// receive has a goroutine carry a connection, which is counted as open when receive returns.
func (r *Relay) receive(c netConn, accept acceptor) {
	if !r.group.add(c) {
		return
	}
	r.counters.accepted.Add(1)
	r.counters.dialing.Add(1)
	go r.carry(c, accept) // ends when both of its ends have, or with the group
}

// carry connects an accepted connection to an endpoint, and moves bytes until both have
// ended.
func (r *Relay) carry(client netConn, accept acceptor) {
	defer r.group.remove(client)
	server, from := accept(client)
	endpoint := r.connect(server, from)
	if endpoint == nil || !r.group.add(endpoint) {
		r.counters.dialing.Add(-1)
		if endpoint == nil {
			abort(client.TCPConn)
		}
		return
	}
	defer r.group.remove(endpoint)
	r.counters.established.Add(1) // first: it is one of both at any moment
	defer r.counters.established.Add(-1)
	r.counters.dialing.Add(-1)
	r.join(client.TCPConn, endpoint)
}

// connect connects to an endpoint that accepts. Nil: none does.
func (r *Relay) connect(s *server, from sdk.Caller) *net.TCPConn {
	if s == nil {
		return nil
	}
	ctx := r.group.context()
	for a := (attempts{server: s, from: from}); ctx.Err() == nil; {
		ep, timeout, ok := a.next()
		if !ok {
			return nil
		}
		dialer := r.dialer(timeout)
		// Not DialTCP: it takes a local port before it knows the address that is called.
		endpoint, err := dialer.DialContext(ctx, network(sdk.TCP, s.at), ep.String())
		if err == nil {
			return endpoint.(*net.TCPConn)
		}
		a.failed(ep, err)
	}
	return nil
}

// A pump moves bytes one way between two connections:
//
//	client ── in ──▶ pump ──▶ endpoint
//	client ◀── out ── pump ◀── endpoint
//
// The two pumps of a connection end each for itself, so that an end that has closed its
// side can still receive (half-close). A reset on one side becomes one on the other.
type pump struct {
	from, to *net.TCPConn
	bytes    *atomic.Uint64
	reset    *atomic.Bool // shared by both pumps: one side was reset
}

// join moves bytes both ways between client and endpoint until both have ended.
func (r *Relay) join(client, endpoint *net.TCPConn) {
	var reset atomic.Bool
	in := pump{from: client, to: endpoint, bytes: &r.counters.bytesIn, reset: &reset}
	out := pump{from: endpoint, to: client, bytes: &r.counters.bytesOut, reset: &reset}
	var back sync.WaitGroup
	back.Go(out.run) // ends with either connection, which in.run or the group closes
	in.run()
	back.Wait()
	if reset.Load() {
		abort(client)
		abort(endpoint)
	}
}

// run moves bytes until from has closed its side, or one of the two is reset.
func (p *pump) run() {
	readErr, writeErr := p.copy()
	switch {
	case readErr != nil:
		// from is gone, so nothing that to still sends can be delivered.
		p.reset.Store(true)
		abort(p.to)
		abort(p.from)
	case writeErr != nil:
		// What to sent before it was reset is still to be delivered; the other pump
		// does that, and then comes to the reset itself.
		p.reset.Store(true)
		_ = p.to.CloseRead()
	case p.reset.Load():
		abort(p.to)
	default:
		_ = p.to.CloseWrite() // its error is one of a connection that has ended
	}
}

// copy moves bytes until from has closed its side (no error), from fails, or to does.
func (p *pump) copy() (readErr, writeErr error) {
	buf := make([]byte, 16<<10)
	for {
		n, err := p.from.Read(buf)
		if n > 0 {
			if _, err := p.to.Write(buf[:n]); err != nil {
				return nil, err
			}
			p.bytes.Add(uint64(n))
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil:
			return fmt.Errorf("read: %w", err), nil
		}
	}
}

// abort ends conn with a reset.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // of a connection that is broken already: then it needs no reset
	conn.Close()
}
