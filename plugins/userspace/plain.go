// SPDX-License-Identifier: Apache-2.0

package userspace

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

// This file carries TCP by goroutines, one for each direction of a connection, and
// with nothing but package net: that is how it is done wherever there is no better
// way.

// A plainListener is the listener of package net.
type plainListener struct {
	relay  *relay
	at     place
	tcp    *net.TCPListener
	begins sync.Once
}

// listenPlain opens a listener at p.
func (r *relay) listenPlain(ctx context.Context, p place) (listener, error) {
	config := net.ListenConfig{Control: share, KeepAliveConfig: keepAlive}
	config.SetMultipathTCP(false) // an abort must be a reset
	l, err := config.Listen(ctx, network(p), p.addr.String())
	if err != nil {
		return nil, err
	}
	return &plainListener{relay: r, at: p, tcp: l.(*net.TCPListener)}, nil
}

func (l *plainListener) begin(receive reception) {
	l.begins.Do(func() {
		if l.relay.crowd.enter(l.tcp) {
			go l.accept(receive)
		}
	})
}

func (l *plainListener) port() uint16  { return l.tcp.Addr().(*net.TCPAddr).AddrPort().Port() }
func (l *plainListener) stands() error { return standing(l.tcp) }
func (l *plainListener) Close() error  { return l.tcp.Close() }

// accept takes connections in until the listener is closed.
func (l *plainListener) accept(receive reception) {
	r := l.relay
	defer r.crowd.leave(l.tcp)
	pause := pause{log: r, at: l.at}
	for {
		conn, err := l.tcp.AcceptTCP()
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
			go r.serve(conn, receive)
		}
	}
}

// A plainArrival is one that no rule can have led here.
type plainArrival struct{ *net.TCPConn }

func (a plainArrival) remote() netip.Addr             { return a.RemoteAddr().(*net.TCPAddr).AddrPort().Addr() }
func (a plainArrival) meant() (netip.AddrPort, error) { return netip.AddrPort{}, errors.ErrUnsupported }

// serve is the life of one connection. It ends when both ends have, or when the
// crowd is sent home.
func (r *relay) serve(conn *net.TCPConn, receive reception) {
	defer r.crowd.leave(conn)
	r.counts.connections.Add(1)
	d, caller := receive(plainArrival{conn})
	r.counts.calling.Add(1)
	up := r.reach(d, caller)
	r.counts.calling.Add(-1)
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

// reach connects to an endpoint that answers. Nil: none does.
func (r *relay) reach(d *desk, from sdk.Caller) *net.TCPConn {
	if d == nil {
		return nil
	}
	ctx := r.crowd.context()
	for s := (search{desk: d, from: from}); ctx.Err() == nil; {
		ep, wait, ok := s.next()
		if !ok {
			return nil
		}
		dialer := r.dialer(wait)
		up, err := dialer.DialContext(ctx, network(d.at), ep.String()) // and not DialTCP, which takes a port before it is known for whom
		if err == nil {
			return up.(*net.TCPConn)
		}
		s.failed(ep, err)
	}
	return nil
}

// A pump carries bytes one way between two connections:
//
//	caller ── in ──▶ pump ──▶ endpoint
//	caller ◀── out ── pump ◀── endpoint
//
// The two pumps of a pair end each for itself, so that an end that has said all
// can still listen. A reset on one side becomes one on the other.
type pump struct {
	from, to *net.TCPConn
	bytes    *atomic.Uint64
	reset    *atomic.Bool // shared by the pair: one side was broken off
}

// join carries bytes both ways between conn and up until both have ended.
func (r *relay) join(conn, up *net.TCPConn) {
	var reset atomic.Bool
	in := pump{from: conn, to: up, bytes: &r.counts.bytesIn, reset: &reset}
	out := pump{from: up, to: conn, bytes: &r.counts.bytesOut, reset: &reset}
	var back sync.WaitGroup
	back.Go(out.run) // ends with either connection, which in.run or leave closes
	in.run()
	back.Wait()
	if reset.Load() {
		abort(conn)
		abort(up)
	}
}

// run pumps until from has said all, or one of the two is broken off.
func (p *pump) run() {
	readErr, writeErr := p.carry()
	switch {
	case readErr != nil:
		// Nobody is left to read what the other side still says.
		p.reset.Store(true)
		abort(p.to)
		abort(p.from)
	case writeErr != nil:
		// What to said before it was broken off is still to be carried back; that
		// pump will come to the break itself.
		p.reset.Store(true)
		_ = p.to.CloseRead()
	case p.reset.Load():
		abort(p.to)
	default:
		_ = p.to.CloseWrite() // its error is one of a connection that has ended
	}
}

// carry moves bytes until from has said all (no error), from breaks off, or to
// takes no more.
func (p *pump) carry() (readErr, writeErr error) {
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
