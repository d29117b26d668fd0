// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A listener accepts TCP connections from start to Close. Before start, clients wait in the kernel.
type listener struct {
	relay *Relay
	at    netip.AddrPort
	tcp   *net.TCPListener
	once  sync.Once

	accept acceptor
	cancel context.CancelFunc // ends a backoff
	ended  chan struct{}      // closed when run has accepted its last connection; nil before start
}

// An acceptor returns the server of an accepted connection and its Caller. If the server is nil, the connection is reset.
type acceptor func(*net.TCPConn) (*server, sdk.Caller)

// listenTCP opens a listener. control sets options of its socket; nil means none.
func (r *Relay) listenTCP(ctx context.Context, at netip.AddrPort, control func(string, string, syscall.RawConn) error) (*listener, error) {
	config := net.ListenConfig{Control: control, KeepAliveConfig: keepAlive}
	config.SetMultipathTCP(false) // with MPTCP, abort would not reset
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

// Close closes the listener after it has accepted the connections that wait in the kernel, which would reset them.
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
		for !r.hasRoom() && backoff.wait(ctx, errTooMany) {
		}
		backoff.reset()
		r.receive(c, l.accept)
	}
}

// spareFiles is the number of descriptors that are kept for everything but connections.
const spareFiles = 32

// hasRoom reports whether there are descriptors for one more connection and its endpoint. Without this check connections
// could take all descriptors and leave none for their endpoints: none would be served, and all would be reset. Each member
// of the group has one descriptor.
func (r *Relay) hasRoom() bool {
	return r.Counters.Open() == 0 || r.group.size()+int(r.Counters.Dialing.Load())+2+spareFiles <= maxFiles()
}

// receive counts a connection as open, and forwards it in its own goroutine.
func (r *Relay) receive(client *net.TCPConn, accept acceptor) {
	if !r.group.add(client) {
		return
	}
	r.Counters.Accepted.Add(1)
	r.Counters.Dialing.Add(1)
	go r.forward(client, accept) // ends with the connection, or with the group
}

// forward connects to an endpoint, and copies bytes until both connections have ended.
func (r *Relay) forward(client *net.TCPConn, accept acceptor) {
	defer r.group.remove(client)
	endpoint := r.connect(accept(client))
	if endpoint == nil || !r.group.add(endpoint) {
		r.Counters.Dialing.Add(-1)
		abort(client)
		return
	}
	defer r.group.remove(endpoint)
	r.Counters.Established.Add(1) // before Dialing, so that Open never misses it
	defer r.Counters.Established.Add(-1)
	r.Counters.Dialing.Add(-1)
	r.join(client, endpoint)
}

// dialTimeouts are the times that the endpoints have to accept, one after the other. A single endpoint has allTimeouts. After
// that the client is reset.
var dialTimeouts = [...]time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

const allTimeouts = 3750 * time.Millisecond

// connect connects to an endpoint for a client of s. It tries other endpoints if one does not accept, and returns nil if none
// does.
func (r *Relay) connect(s *server, from sdk.Caller) *net.TCPConn {
	if s == nil {
		return nil
	}
	ctx, end := r.group.context(), time.Now().Add(allTimeouts)
	var tried []netip.AddrPort
	for _, timeout := range dialTimeouts {
		target := s.target.Load()
		if target == nil {
			return nil // Serve was not called yet
		}
		ep, only, verdict := r.choose(target, from, tried)
		if verdict != sdk.Forward || ctx.Err() != nil {
			return nil
		}
		dialer := r.dialer()
		if dialer.Deadline = end; !only {
			dialer.Deadline = time.Now().Add(timeout)
		}
		// DialTCP would choose the local port before the destination is known, which limits the number of connections.
		endpoint, err := dialer.DialContext(ctx, network(sdk.TCP, s.at), ep.String())
		if err == nil {
			return endpoint.(*net.TCPConn)
		}
		tried = append(tried, ep)
		r.Counters.DialErrors.Add(1)
		r.log.Load().Debug("endpoint does not accept", "at", "tcp "+s.at.String(), "endpoint", ep, "err", err)
		if outOfFiles(err) {
			sleep(ctx, timeout) // other connections may close meanwhile
		}
	}
	r.Counters.Unanswered.Add(1)
	return nil
}

// A pump copies bytes from one connection to another:
//
//	client ── in ──▶ pump ──▶ endpoint
//	client ◀── out ── pump ◀── endpoint
//
// The two pumps of a connection end independently, so that a peer that has closed its side still receives (half-close). A
// reset by one peer is passed on to the other.
type pump struct {
	*pair
	from, to *net.TCPConn
	bytes    *atomic.Uint64
}

// A pair is the state that both pumps of a connection share.
type pair struct {
	buffers *buffers
	reset   atomic.Bool  // one of the connections was reset
	ended   atomic.Int32 // number of pumps that have ended
}

// join copies bytes in both directions until both connections have ended.
func (r *Relay) join(client, endpoint *net.TCPConn) {
	both := pair{buffers: &r.buffers}
	in := pump{&both, client, endpoint, &r.Counters.BytesIn}
	out := pump{&both, endpoint, client, &r.Counters.BytesOut}
	var back sync.WaitGroup
	back.Go(out.run) // ends when in.run or the group closes a connection
	in.run()
	back.Wait()
}

// run copies bytes until from has closed its side, or one of the connections was reset.
func (p *pump) run() {
	readErr, writeErr := p.copy()
	switch {
	case readErr != nil:
		p.resetBoth() // nothing that to still sends can be delivered
	case writeErr != nil:
		// The other pump delivers the bytes that to sent before the reset, and then sees the reset itself.
		p.reset.Store(true)
		_ = p.to.CloseRead()
	case p.reset.Load():
		abort(p.to)
	default:
		_ = p.to.CloseWrite() // fails only if the connection has ended
	}
	if p.ended.Add(1) == 2 {
		p.to.Close() // the other pump has ended, too
	} else if readErr == nil && writeErr == nil && awaitReset(p.from) {
		p.resetBoth()
	}
}

func (p *pump) resetBoth() {
	p.reset.Store(true)
	abort(p.to)
	abort(p.from)
}

// copy copies bytes until from has closed its side, a read fails, or a write fails.
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

// abort closes conn with a reset.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // fails only if the connection is broken
	conn.Close()
}

// remote returns the address of a client.
func remote(c *net.TCPConn) netip.Addr { return c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr() }
