// SPDX-License-Identifier: Apache-2.0

package userspace

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

// maxFlows bounds the flows of a relay: each holds a socket. Beyond, datagrams
// of new callers are lost until others have been idle long enough.
const maxFlows = 16384

// A udpSocket stands at one place. What endpoints answer goes back through it,
// so that callers see the address they sent to.
//
//	caller A ──▶ ┌────────┐ ──▶ flow of A ──▶ endpoint 1
//	caller B ──▶ │ socket │ ──▶ flow of B ──▶ endpoint 2
//	         ◀── └────────┘ ◀── replies
type udpSocket struct {
	relay *relay
	at    place
	conn  *net.UDPConn
	whose atomic.Pointer[target]
	reads sync.Once

	// hearsDevices: the kernel says on which device a datagram came in.
	hearsDevices bool

	mu      sync.Mutex // guards all below
	flows   map[netip.AddrPort]*flow
	retired bool // takes no new flows, and is closed with the last
	closed  bool
}

// openUDP makes a socket for what is sent to p, which reaches it at bound.
func (r *relay) openUDP(ctx context.Context, p place, bound netip.AddrPort) (*udpSocket, error) {
	l := net.ListenConfig{Control: share}
	conn, err := l.ListenPacket(ctx, network(p), bound.String())
	if err != nil {
		return nil, err
	}
	return &udpSocket{relay: r, at: p, conn: conn.(*net.UDPConn), flows: make(map[netip.AddrPort]*flow)}, nil
}

// give makes t the one whom datagrams are for. The flows of the one before it go
// on where t has their endpoint too.
func (s *udpSocket) give(t *target) {
	s.whose.Store(t)
	s.follow()
	s.reads.Do(func() {
		if s.relay.crowd.enter(s.conn) {
			go s.read()
		}
	})
}

func (s *udpSocket) target() *target { return s.whose.Load() }
func (s *udpSocket) stands() error   { return standing(s.conn) }

// port is where it is reached.
func (s *udpSocket) port() uint16 { return s.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

// follow ends the flows to endpoints that serve no more, if anyone serves: the
// next datagram of their callers then goes elsewhere.
func (s *udpSocket) follow() {
	svc := s.whose.Load().service.value.Load()
	if len(svc.Cluster)+len(svc.Local)+len(svc.Serving) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flows {
		if !serves(svc, f.endpoint) {
			s.drop(f)
		}
	}
}

func serves(svc *sdk.Service, ep netip.AddrPort) bool {
	if has(svc.Cluster, ep) || has(svc.Local, ep) {
		return true
	}
	for _, addr := range svc.Serving {
		if addr == ep.Addr() {
			return true
		}
	}
	return false
}

// retire takes no new flows, and closes the socket with the last.
func (s *udpSocket) retire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.closeIfDone()
	return !s.closed
}

// shut ends all flows too.
func (s *udpSocket) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flows {
		s.drop(f)
	}
	s.retired = true
	s.closeIfDone()
}

func (s *udpSocket) resume() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = s.closed
	return !s.closed
}

// closeIfDone closes a retired socket that has no flows. The caller holds mu.
func (s *udpSocket) closeIfDone() {
	if s.retired && len(s.flows) == 0 {
		s.closed = true
		s.conn.Close()
	}
}

// read takes datagrams in until the socket is closed.
func (s *udpSocket) read() {
	defer s.relay.crowd.leave(s.conn)
	in := newDatagrams(&s.relay.buffers, s.conn)
	in.hear(s.hearsDevices)
	pause := pause{log: s.relay, at: s.at}
	for {
		buf, n, from, err := in.read()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !pause.after(s.relay.crowd.context(), err) {
				return
			}
			continue
		}
		pause.over()
		s.relay.counts.bytesIn.Add(uint64(n))
		s.forward(buf[:n], from, in)
		in.giveBack(buf)
	}
}

// forward sends one datagram on. An endpoint that has refused the one before is
// left for another, once. One for which the one before was too long is not: the kernel
// knows since how long they may be, and sends what is longer in parts.
func (s *udpSocket) forward(datagram []byte, from netip.AddrPort, in *datagrams) {
	var tried []netip.AddrPort
	for range 2 {
		f := s.flow(from, tried, in)
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

// flow is the one that the caller has, or a new one. Nil: there is none for it.
func (s *udpSocket) flow(from netip.AddrPort, tried []netip.AddrPort, in *datagrams) *flow {
	s.mu.Lock()
	f, retired := s.flows[from], s.retired
	s.mu.Unlock()
	if f != nil || retired {
		return f
	}
	r := s.relay
	ep, verdict := r.choose(s.whose.Load(), r.ground.Load().caller(from.Addr(), in.device()), tried)
	if verdict != sdk.Forward {
		return nil
	}
	if r.counts.flows.Load() >= maxFlows {
		r.counts.overflow.Add(1)
		return nil
	}
	d := r.dialer(0)
	conn, err := d.DialContext(r.crowd.context(), network(s.at), ep.String())
	if err != nil {
		r.counts.dialErrors.Add(1)
		r.log.Load().Debug("cannot send to endpoint", "service", s.whose.Load().service.name, "endpoint", ep, "err", err)
		return nil
	}
	return s.begin(&flow{socket: s, caller: from, endpoint: ep, conn: conn.(*net.UDPConn)})
}

// begin makes f the caller's flow. Only the socket's own reader calls it, so there
// is none yet.
func (s *udpSocket) begin(f *flow) *flow {
	f.touch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired || !s.relay.crowd.enter(f.conn) {
		f.conn.Close()
		return nil
	}
	s.flows[f.caller] = f
	s.relay.counts.flows.Add(1)
	s.relay.counts.flowsBegun.Add(1)
	go f.replies()
	return f
}

// end is drop, for who does not hold mu.
func (s *udpSocket) end(f *flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(f)
	s.closeIfDone()
}

// drop forgets f; its goroutine ends by it. The caller holds mu.
func (s *udpSocket) drop(f *flow) {
	if s.flows[f.caller] == f {
		delete(s.flows, f.caller)
		s.relay.counts.flows.Add(-1)
		f.conn.Close()
	}
}

// A flow is what one caller and one endpoint say to each other through a socket.
type flow struct {
	socket   *udpSocket
	caller   netip.AddrPort
	endpoint netip.AddrPort
	conn     *net.UDPConn // connected to the endpoint
	used     atomic.Int64 // when last, by the wall clock
}

func (f *flow) touch() { f.used.Store(time.Now().UnixNano()) }

// replies carries back what the endpoint says, until the flow has been idle for
// long enough, was dropped, or the endpoint refuses it.
func (f *flow) replies() {
	r := f.socket.relay
	defer r.crowd.leave(f.conn)
	defer f.socket.end(f)
	in := newDatagrams(&r.buffers, f.conn)
	for {
		until := time.Unix(0, f.used.Load()+r.idle.Load())
		if time.Until(until) <= 0 || f.conn.SetReadDeadline(until) != nil {
			return
		}
		buf, n, _, err := in.read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // a datagram of the caller may have prolonged it
		}
		if errors.Is(err, errTooLong) {
			continue // a datagram was, for a router on the way: nobody is refused
		}
		if err != nil {
			return
		}
		f.touch()
		r.counts.bytesOut.Add(uint64(n))
		_, _ = f.socket.conn.WriteToUDPAddrPort(buf[:n], f.caller) // a lost datagram is the caller's to miss
		in.giveBack(buf)
	}
}
