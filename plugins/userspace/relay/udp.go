// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// maxFlows bounds the flows of a Relay: each holds a socket. Beyond it, datagrams of new
// clients are dropped until other flows have been idle long enough.
const maxFlows = 16384

// A udpSocket receives at one address. What endpoints answer goes back through it, so
// that clients see the address they sent to.
//
//	client A ──▶ ┌────────┐ ──▶ flow of A ──▶ endpoint 1
//	client B ──▶ │ socket │ ──▶ flow of B ──▶ endpoint 2
//	         ◀── └────────┘ ◀── replies
type udpSocket struct {
	server
	conn  *net.UDPConn
	in    *reader // of conn
	start sync.Once

	mu       sync.Mutex // guards all below
	flows    map[netip.AddrPort]*flow
	leaving  bool // draining soon: the read deadline is set
	draining bool // begins no flow, and is closed with the last
	closed   bool
}

// lastDatagrams is how long a socket begins flows after Drain. What reached it before Drain is forwarded: the
// kernel sends what comes later to another dataplane.
const lastDatagrams = time.Second

// listenUDP opens a socket for datagrams to at, which reach it at bound. With devices it knows by which device each came in.
func (r *Relay) listenUDP(ctx context.Context, at, bound netip.AddrPort, devices bool) (Socket, error) {
	l := net.ListenConfig{Control: reusePort}
	conn, err := l.ListenPacket(ctx, network(sdk.UDP, at), bound.String())
	if err != nil {
		return nil, err
	}
	udp := conn.(*net.UDPConn)
	s := &udpSocket{server: server{relay: r, at: at}, conn: udp, in: newReader(&r.buffers, udp), flows: make(map[netip.AddrPort]*flow)}
	if devices {
		if err := s.in.receiveDevices(bound.Addr().Is4()); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return s, nil
}

// Serve makes t the target. The flows of the one before it go on where t has their
// endpoint too.
func (s *udpSocket) Serve(t *Target) {
	s.target.Store(t)
	s.EndpointsChanged()
	s.start.Do(func() {
		if s.relay.group.add(s.conn) {
			go s.read() // ends when s.conn is closed
		}
	})
}

func (s *udpSocket) Port() uint16 { return s.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

// EndpointsChanged ends the flows to endpoints that serve no more.
func (s *udpSocket) EndpointsChanged() {
	svc := s.target.Load().Service.Value()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flows {
		if !serves(svc, f.endpoint) {
			s.drop(f)
		}
	}
}

func (s *udpSocket) Drain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leaving {
		s.leaving = true
		_ = s.conn.SetReadDeadline(time.Now().Add(lastDatagrams)) // fails only if it is closed
	}
	return !s.closed
}

// drained is called when the time is over that a draining socket begins flows.
func (s *udpSocket) drained() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.conn.SetReadDeadline(time.Time{}) // flows go on
	s.draining = s.draining || s.leaving
	s.closeIfDrained()
}

func (s *udpSocket) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flows {
		s.drop(f)
	}
	s.draining = true
	s.closeIfDrained()
}

func (s *udpSocket) Resume() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving, s.draining = false, s.closed
	_ = s.conn.SetReadDeadline(time.Time{}) // fails only if it is closed
	return !s.closed
}

// closeIfDrained closes a draining socket that has no flows. The caller holds mu.
func (s *udpSocket) closeIfDrained() {
	if s.draining && len(s.flows) == 0 {
		s.closed = true
		s.conn.Close()
	}
}

// read forwards datagrams until the socket is closed.
func (s *udpSocket) read() {
	defer s.relay.group.remove(s.conn)
	backoff := backoff{relay: s.relay, at: "udp " + s.at.String()}
	for {
		buf, n, from, err := s.in.read()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.drained()
			continue
		case err != nil:
			if !backoff.wait(s.relay.group.context(), err) {
				return
			}
			continue
		}
		backoff.reset()
		s.relay.Counters.BytesIn.Add(uint64(n))
		s.forward(buf[:n], from)
		s.in.giveBack(buf)
	}
}

// forward sends one datagram to an endpoint. One that refused the datagram before is
// replaced by another, once. One for which the datagram before was too long is not: the
// kernel has learnt the path's MTU, and sends what is longer in fragments.
func (s *udpSocket) forward(datagram []byte, from netip.AddrPort) {
	var tried []netip.AddrPort
	for range 2 {
		f := s.flow(from, tried)
		if f == nil {
			return
		}
		f.touch()
		_, err := f.conn.Write(datagram)
		if errors.Is(err, errTooLong) {
			_, err = f.conn.Write(datagram)
		}
		if err == nil || errors.Is(err, errTooLong) {
			return
		}
		tried = append(tried, f.endpoint)
		s.end(f)
	}
}

// flow returns the client's flow, or begins one. Nil: there is no endpoint for it.
func (s *udpSocket) flow(from netip.AddrPort, tried []netip.AddrPort) *flow {
	s.mu.Lock()
	f, draining := s.flows[from], s.draining
	s.mu.Unlock()
	if f != nil || draining {
		return f
	}
	r, target := s.relay, s.target.Load()
	ep, _, verdict := r.choose(target, r.node.Load().caller(from.Addr(), s.in.device()), tried)
	if verdict != sdk.Forward {
		return nil
	}
	if r.Counters.Flows.Load() >= maxFlows {
		r.Counters.Overflow.Add(1)
		return nil
	}
	d := r.dialer()
	conn, err := d.DialContext(r.group.context(), network(sdk.UDP, s.at), ep.String())
	if err != nil {
		r.Counters.DialErrors.Add(1)
		r.log.Load().Debug("cannot send to endpoint", "service", target.Service.name, "endpoint", ep, "err", err)
		return nil
	}
	return s.begin(&flow{socket: s, client: from, endpoint: ep, conn: conn.(*net.UDPConn)})
}

// begin makes f the client's flow. Only the socket's own reader calls it, so there is
// none yet.
func (s *udpSocket) begin(f *flow) *flow {
	f.touch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || !s.relay.group.add(f.conn) {
		f.conn.Close()
		return nil
	}
	s.flows[f.client] = f
	s.relay.Counters.Flows.Add(1)
	s.relay.Counters.FlowsBegun.Add(1)
	go f.replies() // ends when f is dropped, idle or refused
	return f
}

// end drops f, and closes the socket if it was draining for f alone.
func (s *udpSocket) end(f *flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(f)
	s.closeIfDrained()
}

// drop forgets f, whose goroutine ends by it. The caller holds mu.
func (s *udpSocket) drop(f *flow) {
	if s.flows[f.client] == f {
		delete(s.flows, f.client)
		s.relay.Counters.Flows.Add(-1)
		f.conn.Close()
	}
}

// A flow is what one client and one endpoint send each other through a udpSocket.
type flow struct {
	socket   *udpSocket
	client   netip.AddrPort
	endpoint netip.AddrPort
	conn     *net.UDPConn // connected to the endpoint
	used     atomic.Int64 // when last, by the wall clock
}

func (f *flow) touch() { f.used.Store(time.Now().UnixNano()) }

// replies sends back what the endpoint answers, until the flow has been idle for long
// enough, was dropped, or the endpoint refuses it.
func (f *flow) replies() {
	r := f.socket.relay
	defer r.group.remove(f.conn)
	defer f.socket.end(f)
	in := newReader(&r.buffers, f.conn)
	for {
		until := time.Unix(0, f.used.Load()+r.udpIdle.Load())
		if time.Until(until) <= 0 || f.conn.SetReadDeadline(until) != nil {
			return
		}
		buf, n, _, err := in.read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // a datagram of the client may have prolonged the flow
		}
		if errors.Is(err, errTooLong) {
			continue // a router had to drop a datagram of that size; the endpoint refused nothing
		}
		if err != nil {
			return
		}
		f.touch()
		r.Counters.BytesOut.Add(uint64(n))
		_, _ = f.socket.conn.WriteToUDPAddrPort(buf[:n], f.client) // clients of UDP cope with loss
		in.giveBack(buf)
	}
}

// A buffer holds what was read once and not yet written. It is as large as the largest
// datagram.
type buffer = [1 << 16]byte

// buffers are lent for as long as there is something to read: a socket that waits has
// none.
type buffers struct{ pool sync.Pool }

func (b *buffers) lend() *buffer {
	if got, ok := b.pool.Get().(*buffer); ok {
		return got
	}
	return new(buffer)
}

func (b *buffers) giveBack(buf *buffer) { b.pool.Put(buf) }
