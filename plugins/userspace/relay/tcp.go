// SPDX-License-Identifier: Apache-2.0

package relay

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

// A listener accepts TCP connections from start to Close. Clients that come before start
// wait in the kernel.
type listener struct {
	relay *Relay
	at    netip.AddrPort
	tcp   *net.TCPListener
	once  sync.Once

	accept acceptor
	cancel context.CancelFunc // ends a pause after an error
	ended  chan struct{}      // closed when nothing is accepted any more; nil: not started
}

// An acceptor says which server an accepted connection is for, and where its client is.
// Without a server the connection is reset.
type acceptor func(*net.TCPConn) (*server, sdk.Caller)

// listenTCP opens a listener.
func (r *Relay) listenTCP(ctx context.Context, at netip.AddrPort) (*listener, error) {
	config := net.ListenConfig{Control: reusePort, KeepAliveConfig: keepAlive}
	config.SetMultipathTCP(false) // an abort must be a reset
	l, err := config.Listen(ctx, network(sdk.TCP, at), at.String())
	if err != nil {
		return nil, err
	}
	return &listener{relay: r, at: at, tcp: l.(*net.TCPListener)}, nil
}

func (l *listener) start(accept acceptor) {
	l.once.Do(func() {
		if l.relay.group.add(l.tcp) {
			ctx, cancel := context.WithCancel(l.relay.group.context())
			l.accept, l.cancel, l.ended = accept, cancel, make(chan struct{})
			go l.run(ctx) // ends when l.tcp is closed
		}
	})
}

func (l *listener) port() uint16 { return l.tcp.Addr().(*net.TCPAddr).AddrPort().Port() }

// Close accepts what waits in the kernel, which would reset it, and nothing from then on.
func (l *listener) Close() {
	if l.ended == nil {
		l.tcp.Close()
		return
	}
	waiting := acceptRest(l.tcp)
	l.tcp.Close()
	l.cancel()
	<-l.ended
	for _, c := range waiting {
		l.relay.receive(c, l.accept)
	}
}

// run accepts connections until the listener is closed.
func (l *listener) run(ctx context.Context) {
	r := l.relay
	defer r.group.remove(l.tcp)
	defer close(l.ended)
	backoff := backoff{relay: r, at: "tcp " + l.at.String()}
	for {
		c, err := l.tcp.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !backoff.wait(ctx, err) {
				return
			}
			continue
		}
		backoff.reset()
		r.receive(c, l.accept)
	}
}

// receive has a goroutine carry a connection, which is counted as open when receive returns.
func (r *Relay) receive(client *net.TCPConn, accept acceptor) {
	if !r.group.add(client) {
		return
	}
	r.Counters.Accepted.Add(1)
	r.Counters.Dialing.Add(1)
	go r.carry(client, accept) // ends when both of its ends have, or with the group
}

// carry connects an accepted connection to an endpoint, and moves bytes until both have
// ended.
func (r *Relay) carry(client *net.TCPConn, accept acceptor) {
	defer r.group.remove(client)
	endpoint := r.connect(accept(client))
	if endpoint == nil || !r.group.add(endpoint) {
		r.Counters.Dialing.Add(-1)
		abort(client)
		return
	}
	defer r.group.remove(endpoint)
	r.Counters.Established.Add(1) // first: it is one of both at any moment
	defer r.Counters.Established.Add(-1)
	r.Counters.Dialing.Add(-1)
	r.join(client, endpoint)
}

// dialTimeouts are how long each endpoint that is tried may take to accept; where there
// is only one it has all of that time. After them the client is reset.
var dialTimeouts = [...]time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

const allTimeouts = 3750 * time.Millisecond

// connect connects a client of s to an endpoint: to the one that it is to have, and while that does
// not accept to others in turn. Nil: none accepts.
func (r *Relay) connect(s *server, from sdk.Caller) *net.TCPConn {
	if s == nil {
		return nil
	}
	ctx, end := r.group.context(), time.Now().Add(allTimeouts)
	var tried []netip.AddrPort
	for _, timeout := range dialTimeouts {
		target := s.target.Load()
		if target == nil {
			return nil // the socket is open, and serves nothing yet
		}
		ep, only, verdict := r.choose(target, from, tried)
		if verdict != sdk.Forward || ctx.Err() != nil {
			return nil
		}
		dialer := r.dialer()
		if dialer.Deadline = end; !only {
			dialer.Deadline = time.Now().Add(timeout)
		}
		// Not DialTCP: it takes a local port before it knows the address that is called.
		endpoint, err := dialer.DialContext(ctx, network(sdk.TCP, s.at), ep.String())
		if err == nil {
			return endpoint.(*net.TCPConn)
		}
		tried = append(tried, ep)
		r.Counters.DialErrors.Add(1)
		r.log.Load().Debug("endpoint does not accept", "at", "tcp "+s.at.String(), "endpoint", ep, "err", err)
		if outOfFiles(err) {
			sleep(ctx, timeout) // others may close some in the meantime
		}
	}
	r.Counters.Unanswered.Add(1)
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
	*pair
	from, to *net.TCPConn
	bytes    *atomic.Uint64
}

// A pair is what both pumps of a connection share.
type pair struct {
	buffers *buffers
	reset   atomic.Bool  // one side was reset
	ended   atomic.Int32 // how many of the pumps have
}

// join moves bytes both ways between client and endpoint until both have ended.
func (r *Relay) join(client, endpoint *net.TCPConn) {
	both := pair{buffers: &r.buffers}
	in := pump{&both, client, endpoint, &r.Counters.BytesIn}
	out := pump{&both, endpoint, client, &r.Counters.BytesOut}
	var back sync.WaitGroup
	back.Go(out.run) // ends with either connection, which in.run or the group closes
	in.run()
	back.Wait()
	if both.reset.Load() {
		abort(client)
		abort(endpoint)
	}
}

// run moves bytes until from has closed its side, or one of the two is reset.
func (p *pump) run() {
	readErr, writeErr := p.copy()
	switch {
	case readErr != nil:
		p.breakOff() // from is gone, so nothing that to still sends can be delivered
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
	if p.ended.Add(1) == 2 {
		p.to.Close() // the other pump waits for no more
	} else if readErr == nil && writeErr == nil && awaitReset(p.from) {
		p.breakOff()
	}
}

// breakOff resets both ends.
func (p *pump) breakOff() {
	p.reset.Store(true)
	abort(p.to)
	abort(p.from)
}

// copy moves bytes until from has closed its side (no error), from fails, or to does.
func (p *pump) copy() (readErr, writeErr error) {
	for in := newReader(p.buffers, p.from); ; {
		buf, n, _, err := in.read()
		if n == 0 || err != nil {
			return err, nil
		}
		n, err = p.to.Write(buf[:n])
		in.giveBack(buf)
		p.bytes.Add(uint64(n))
		if err != nil {
			return nil, err
		}
	}
}

// abort ends conn with a reset.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // of a connection that is broken already: then it needs no reset
	conn.Close()
}

// remote is where a client calls from.
func remote(c *net.TCPConn) netip.Addr { return c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr() }
