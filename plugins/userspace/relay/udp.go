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

// maxFlows is the maximum number of flows of a Relay. Each has a socket. If there are more, datagrams of new clients are
// dropped.
const maxFlows = 16384

// A udpSocket receives datagrams to one address. It also sends the replies, so that clients see the address to which they
// sent.
//
//	client A ──▶ ┌────────┐ ──▶ flow of A ──▶ endpoint 1
//	client B ──▶ │ socket │ ──▶ flow of B ──▶ endpoint 2
//	         ◀── └────────┘ ◀── replies
type udpSocket struct {
	server
	conn  *net.UDPConn
	in    *reader // of conn
	start sync.Once

	mu       sync.Mutex // guards the fields below
	flows    map[netip.AddrPort]*flow
	leaving  bool // Drain was called, and the read deadline is set
	draining bool // the socket begins no flows, and is closed with its last flow
	closed   bool
}

// lastDatagrams is the time after Drain in which a socket still begins flows, for datagrams that waited in it. The kernel
// sends later datagrams to another dataplane.
const lastDatagrams = time.Second

// listenUDP opens a socket at bound for datagrams to at. With devices it learns the device by which each arrives.
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

// Serve sets the target. Flows to endpoints that its Service has, too, continue.
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

// EndpointsChanged ends the flows to endpoints that no longer serve.
func (s *udpSocket) EndpointsChanged() {
	svc := s.target.Load().Service.Value()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flows {
		if !serves(svc, f.endpoint) {
			s.dropLocked(f)
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

// drained ends the time in which a draining socket begins flows.
func (s *udpSocket) drained() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.conn.SetReadDeadline(time.Time{}) // flows continue
	s.draining = s.draining || s.leaving
	s.closeIfDrainedLocked()
}

func (s *udpSocket) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flows {
		s.dropLocked(f)
	}
	s.draining = true
	s.closeIfDrainedLocked()
}

func (s *udpSocket) Resume() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving, s.draining = false, s.closed
	_ = s.conn.SetReadDeadline(time.Time{}) // fails only if it is closed
	return !s.closed
}

// closeIfDrainedLocked closes a draining socket without flows.
func (s *udpSocket) closeIfDrainedLocked() {
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

// forward sends a datagram to an endpoint. If the endpoint refused the previous datagram, the flow moves to another endpoint,
// once. If the previous datagram was too long for the path, the kernel knows the MTU now, and sends fragments.
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

// flow returns the flow of a client, or begins one. It returns nil if there is no endpoint.
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

// begin adds a flow. Only read calls it, so the client has no other one.
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

// end ends a flow, and closes the socket if it was draining and has no other flow.
func (s *udpSocket) end(f *flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(f)
	s.closeIfDrainedLocked()
}

// dropLocked removes a flow and ends its goroutine.
func (s *udpSocket) dropLocked(f *flow) {
	if s.flows[f.client] == f {
		delete(s.flows, f.client)
		s.relay.Counters.Flows.Add(-1)
		f.conn.Close()
	}
}

// A flow has the datagrams between one client and one endpoint.
type flow struct {
	socket   *udpSocket
	client   netip.AddrPort
	endpoint netip.AddrPort
	conn     *net.UDPConn // connected to the endpoint
	used     atomic.Int64 // time of the last datagram, in Unix nanoseconds
}

func (f *flow) touch() { f.used.Store(time.Now().UnixNano()) }

// replies forwards the endpoint's datagrams to the client, until the flow was idle for too long or dropped, or the endpoint
// refuses it.
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
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue // a datagram of the client may have prolonged the flow
		case errors.Is(err, errTooLong):
			continue // a router dropped a datagram; the endpoint did not refuse it
		case err != nil:
			return
		}
		f.touch()
		r.Counters.BytesOut.Add(uint64(n))
		_, _ = f.socket.conn.WriteToUDPAddrPort(buf[:n], f.client) // UDP may lose datagrams
		in.giveBack(buf)
	}
}

// A buffer has the size of the largest datagram.
type buffer = [1 << 16]byte

// buffers lends buffers to goroutines while they have something to forward.
type buffers struct{ pool sync.Pool }

func (b *buffers) lend() *buffer {
	if got, ok := b.pool.Get().(*buffer); ok {
		return got
	}
	return new(buffer)
}

func (b *buffers) giveBack(buf *buffer) { b.pool.Put(buf) }
