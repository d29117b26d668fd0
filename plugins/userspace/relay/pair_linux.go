// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// A pair is one connection of a client, and the one to its endpoint:
//
//	client ── in ──▶ endpoint
//	       ◀── out ──
//
// The two streams end each for itself, so that an end that has closed its side can still
// receive (half-close). A reset on one side becomes one on the other.
type pair struct {
	loop             *loop
	dialing          *attempts // nil: an endpoint has accepted
	client, endpoint end
	in, out          stream
	reset            bool // one side was reset
	closed           bool
	queued           bool // it is among the loop's runnable
}

// admit makes a pair of a connection that this loop has accepted, and counted as dialing: here, or
// at another loop that has fewer.
func (l *loop) admit(c accepted, accept acceptor) {
	l.relay.counters.accepted.Add(1)
	other, err := l.relay.loops.get(l.relay)
	if err != nil || other == l || other.pairs.Load() >= l.pairs.Load() {
		l.begin(c, accept)
		return
	}
	if !other.post(func() { other.begin(c, accept) }) {
		l.giveUp(c)
	}
}

// giveUp closes what was accepted and will never be a pair.
func (l *loop) giveUp(c accepted) {
	l.relay.counters.dialing.Add(-1)
	closeFile(c.fd)
}

// begin makes a pair of c, and connects it to an endpoint.
func (l *loop) begin(c accepted, accept acceptor) {
	server, from := accept(c)
	if server == nil {
		l.relay.counters.dialing.Add(-1)
		resetFile(c.fd)
		return
	}
	p := newPair(l, c.fd, server, from)
	l.pairs.Add(1)
	if err := p.client.watch(); err != nil {
		p.abort()
		return
	}
	p.dial(p.dialing.next())
}

func newPair(l *loop, client int, s *server, from sdk.Caller) *pair {
	p := &pair{loop: l, dialing: &attempts{server: s, from: from}}
	p.client = end{pair: p, fd: client, writable: true}
	p.endpoint = end{pair: p, fd: -1, writable: true}
	p.in = stream{pair: p, from: &p.client, to: &p.endpoint, count: &l.relay.counters.bytesIn}
	p.out = stream{pair: p, from: &p.endpoint, to: &p.client, count: &l.relay.counters.bytesOut}
	return p
}

// dial connects to ep, and if that fails at once, to the next.
func (p *pair) dial(ep netip.AddrPort, timeout time.Duration, ok bool) {
	for ; ok; ep, timeout, ok = p.dialing.next() {
		fd, err := connectTo(ep, p.loop.relay.mark.Load())
		if err == nil {
			p.endpoint.fd = fd
			err = p.endpoint.watch()
		}
		if err == nil || outOfFiles(err) { // others may close some in the meantime
			p.loop.timers.start(p, timeout)
			return
		}
		p.abandon(ep, err)
	}
	p.abort()
}

// abandon closes the connection to ep, which does not accept.
func (p *pair) abandon(ep netip.AddrPort, err error) {
	p.dialing.failed(ep, err)
	p.endpoint.close()
	p.endpoint = end{pair: p, fd: -1, writable: true}
}

// onDialEvent is called when the endpoint has accepted or refused.
func (p *pair) onDialEvent(events uint32) {
	switch {
	case events&(unix.EPOLLERR|unix.EPOLLHUP) != 0:
		p.loop.timers.stop(p)
		p.abandon(p.dialing.last(), socketError(p.endpoint.fd))
		p.dial(p.dialing.next())
	case events&unix.EPOLLOUT != 0:
		p.loop.timers.stop(p)
		p.dialing = nil
		p.loop.relay.counters.established.Add(1) // first: it is one of both at any moment
		p.loop.relay.counters.dialing.Add(-1)
		p.advance()
	}
}

// onTime is called when the endpoint has had its time. Where there is no other it
// is given more: a client that tries again would be answered no sooner.
func (p *pair) onTime() {
	was := p.dialing.last()
	ep, timeout, ok := p.dialing.next()
	if ok && ep == was && p.endpoint.fd >= 0 {
		p.loop.timers.start(p, timeout)
		return
	}
	p.abandon(was, os.ErrDeadlineExceeded)
	p.dial(ep, timeout, ok)
}

// advance carries bytes as far as it can without waiting.
func (p *pair) advance() {
	if p.dialing != nil || p.closed {
		return
	}
	more := p.in.advance()
	more = p.out.advance() || more
	switch {
	case p.closed:
	case p.in.done && p.out.done:
		p.close()
	case more:
		p.advanceSoon()
	}
}

// advanceSoon has the loop advance p after others.
func (p *pair) advanceSoon() {
	if !p.queued {
		p.queued = true
		p.loop.runnable = append(p.loop.runnable, p)
	}
}

// abort closes p with a reset on both sides.
func (p *pair) abort() {
	p.reset = true
	p.close()
}

// close closes all that p has.
func (p *pair) close() {
	if p.closed {
		return
	}
	p.closed = true
	if p.dialing != nil {
		p.loop.timers.stop(p)
		p.loop.relay.counters.dialing.Add(-1)
	} else {
		p.loop.relay.counters.established.Add(-1)
	}
	p.loop.pairs.Add(-1)
	p.in.drop()
	p.out.drop()
	p.client.close()
	p.endpoint.close()
}

// from returns the stream of what e sends.
func (p *pair) from(e *end) *stream {
	if e == &p.client {
		return &p.in
	}
	return &p.out
}

// An end is one of the two connections of a pair.
type end struct {
	pair     *pair
	fd       int // -1: there is none
	token    token
	readable bool // as far as is known
	writable bool
	last     bool // no event will tell of more to read: it is to be read to its end
	broken   bool // the other side has reset it, so it needs no reset
}

// watched are all events of an end. They are reported when they happen, not for as long
// as they last (edge-triggered), so what is watched need never be changed.
const watched = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

func (e *end) watch() (err error) {
	e.token, err = e.pair.loop.watch(e.fd, watched, e)
	return err
}

func (e *end) onEvent(events uint32) {
	broken := events&unix.EPOLLERR != 0
	e.last = e.last || events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
	e.readable = e.readable || e.last || events&unix.EPOLLIN != 0
	e.writable = e.writable || events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0
	switch p := e.pair; {
	case p.dialing != nil && e == &p.endpoint:
		p.onDialEvent(events)
	case broken && (p.dialing != nil || p.from(e).done): // no read would notice it
		e.broken = true
		p.abort()
	default:
		p.advance()
	}
}

func (e *end) onClose() { e.pair.close() }

func (e *end) close() {
	if e.fd < 0 {
		return
	}
	delete(e.pair.loop.watchers, e.token)
	if e.pair.reset && !e.broken {
		resetFile(e.fd)
	} else {
		closeFile(e.fd)
	}
	e.fd = -1
}
