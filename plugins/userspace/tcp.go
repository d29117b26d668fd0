// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// This file is what TCP is on every system: whose a connection is, and which
// endpoints are tried for it. Carrying it is the business of one loop for each
// processor on Linux (loop_linux.go), and of goroutines elsewhere (plain.go).

// waits are how long each endpoint that is tried may take to answer; the only one there
// is has all of that time. After them the caller is turned away.
var waits = [...]time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// keepAlive finds out in two minutes that one end is gone without a word, so that
// the other is not held for ever.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// A listener takes connections in from begin to Close. Callers who come before
// wait in the kernel.
type listener interface {
	begin(reception)
	port() uint16
	stands() error // does the kernel still have it?
	Close() error
}

// A reception says at whose desk a connection is dealt with, and who calls. Nil:
// nobody deals with it.
type reception func(arrival) (*desk, sdk.Caller)

// An arrival is a connection that was just taken in.
type arrival interface {
	remote() netip.Addr             // who calls
	meant() (netip.AddrPort, error) // where to, before a rule changed it
}

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
	listener listener
}

func (r *relay) openTCP(ctx context.Context, p place) (socket, error) {
	l, err := r.listen(ctx, p)
	if err != nil {
		return nil, err
	}
	return &tcpSocket{desk: desk{relay: r, at: p}, listener: l}, nil
}

// give makes t the one whom connections are for. The first begins to accept.
func (s *tcpSocket) give(t *target) {
	s.whose.Store(t)
	s.listener.begin(s.receive)
}

func (s *tcpSocket) receive(a arrival) (*desk, sdk.Caller) {
	return &s.desk, s.relay.ground.Load().caller(a.remote(), "")
}

func (s *tcpSocket) follow()       {}                         // an established connection outlives its endpoint's place in the list
func (s *tcpSocket) retire() bool  { s.shut(); return false } // connections have sockets of their own
func (s *tcpSocket) resume() bool  { return false }
func (s *tcpSocket) shut()         { s.listener.Close() }
func (s *tcpSocket) stands() error { return s.listener.stands() }

// A search is for an endpoint that answers a caller: the one that it is to have,
// and others in turn when that does not.
type search struct {
	desk  *desk
	from  sdk.Caller
	whose *target // among whose endpoints next looked
	tried []netip.AddrPort
}

// next is the endpoint to try now, and how long it may take. False: there is none
// for this caller.
func (s *search) next() (ep netip.AddrPort, wait time.Duration, ok bool) {
	r := s.desk.relay
	if s.whose = s.desk.target(); s.whose == nil {
		return ep, 0, false // the place was opened, and is nobody's yet
	}
	if len(s.tried) == len(waits) {
		r.counts.unanswered.Add(1)
		return ep, 0, false
	}
	ep, verdict := r.choose(s.whose, s.from, s.tried)
	if verdict != sdk.Forward {
		return ep, 0, false
	}
	wait = waits[len(s.tried)]
	s.tried = append(s.tried, ep)
	return ep, wait, true
}

// last is the endpoint that next gave.
func (s *search) last() netip.AddrPort { return s.tried[len(s.tried)-1] }

// failed says that ep, which next gave, did not answer.
func (s *search) failed(ep netip.AddrPort, err error) {
	r := s.desk.relay
	r.counts.dialErrors.Add(1)
	r.log.Load().Debug("endpoint does not answer", "at", s.desk.at.String(), "endpoint", ep, "err", err)
}
