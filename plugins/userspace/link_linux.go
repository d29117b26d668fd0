// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A link is one connection of a caller, and the one to its endpoint:
//
//	caller ── in ──▶ endpoint
//	       ◀── out ──
//
// The two streams end each for itself, so that an end that has said all can still
// listen. A reset on one side becomes one on the other.
type link struct {
	loop             *loop
	call             *call // nil: an endpoint has answered
	caller, endpoint end
	in, out          stream
	reset            bool // one side was broken off
	ended            bool
	queued           bool // it is among the loop's again
}

// A call is to an endpoint that has not answered yet.
type call struct {
	search
	until time.Time
	index int // among those who wait
}

// notWaiting is the index of a call that nobody waits for.
const notWaiting = -1

// admit begins a link for a caller whom this loop took in: here, or at another loop
// that has less to do.
func (l *loop) admit(a arrived, receive reception) {
	l.relay.counts.connections.Add(1)
	other := l.all.next()
	if other == l || other.links.Load() >= l.links.Load() {
		l.link(a, receive)
		return
	}
	if !other.ask(func() { other.link(a, receive) }) {
		closeFile(a.fd)
	}
}

// link begins one for a.
func (l *loop) link(a arrived, receive reception) {
	desk, from := receive(a)
	if desk == nil {
		breakOff(a.fd)
		return
	}
	k := &link{loop: l, call: &call{search: search{desk: desk, from: from}, index: notWaiting}}
	k.caller = end{link: k, fd: a.fd, writable: true}
	k.endpoint = end{link: k, fd: -1, writable: true}
	k.in = stream{link: k, from: &k.caller, to: &k.endpoint, count: &l.relay.counts.bytesIn}
	k.out = stream{link: k, from: &k.endpoint, to: &k.caller, count: &l.relay.counts.bytesOut}
	l.links.Add(1)
	l.relay.counts.calling.Add(1)
	if err := k.caller.watch(); err != nil {
		k.breakOff()
		return
	}
	k.dial()
}

// dial calls the next endpoint.
func (k *link) dial() { k.try(k.call.next()) }

// try calls ep, and if that cannot be, the next.
func (k *link) try(ep netip.AddrPort, wait time.Duration, ok bool) {
	for ; ok; ep, wait, ok = k.call.next() {
		fd, err := callTo(ep, k.loop.relay.mark.Load())
		if err == nil {
			k.endpoint.fd = fd
			err = k.endpoint.watch()
		}
		if err == nil || outOfFiles(err) { // others may close some in the meantime
			k.loop.await(k, wait)
			return
		}
		k.unanswered(ep, err)
	}
	k.breakOff()
}

// unanswered leaves ep, which was called.
func (k *link) unanswered(ep netip.AddrPort, err error) {
	k.call.failed(ep, err)
	k.endpoint.close()
	k.endpoint = end{link: k, fd: -1, writable: true}
}

// heard is what has happened to a call.
func (k *link) heard(events uint32) {
	switch {
	case events&(unix.EPOLLERR|unix.EPOLLHUP) != 0:
		k.loop.stopWaiting(k.call)
		k.unanswered(k.call.last(), failure(k.endpoint.fd))
		k.dial()
	case events&unix.EPOLLOUT != 0:
		k.loop.stopWaiting(k.call)
		k.call = nil
		k.loop.relay.counts.calling.Add(-1)
		k.loop.relay.counts.open.Add(1)
		k.goOn()
	}
}

// late: the endpoint has had its time. Where there is no other it is given more: who
// calls it anew is answered no sooner.
func (k *link) late() {
	was := k.call.last()
	ep, wait, ok := k.call.next()
	if ok && ep == was && k.endpoint.fd >= 0 {
		k.loop.await(k, wait)
		return
	}
	k.unanswered(was, os.ErrDeadlineExceeded)
	k.try(ep, wait, ok)
}

// goOn goes as far as it can without waiting.
func (k *link) goOn() {
	if k.call != nil || k.ended {
		return
	}
	more := k.in.goOn()
	more = k.out.goOn() || more
	switch {
	case k.ended:
	case k.in.over && k.out.over:
		k.end()
	case more:
		k.goOnSoon()
	}
}

// goOnSoon is goOn, after others.
func (k *link) goOnSoon() {
	if !k.queued {
		k.queued = true
		k.loop.again = append(k.loop.again, k)
	}
}

// breakOff ends the link, with a reset on both sides.
func (k *link) breakOff() {
	k.reset = true
	k.end()
}

// end closes all that the link has.
func (k *link) end() {
	if k.ended {
		return
	}
	k.ended = true
	if k.call != nil {
		k.loop.stopWaiting(k.call)
		k.loop.relay.counts.calling.Add(-1)
	} else {
		k.loop.relay.counts.open.Add(-1)
	}
	k.loop.links.Add(-1)
	k.in.drop()
	k.out.drop()
	k.caller.close()
	k.endpoint.close()
}

// An end is one of the two connections of a link.
type end struct {
	link     *link
	fd       int // -1: there is none
	ticket   ticket
	readable bool // for all that is known
	writable bool
	last     bool // no event will tell of more to read: it is to be read to its end
	broken   bool // it needs no reset
}

// watched is all that may happen to an end. It is told when it happens, and not for
// as long as it lasts, so nobody need say what he waits for now.
const watched = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

func (e *end) watch() (err error) {
	e.ticket, err = e.link.loop.watch(e.fd, watched, e)
	return err
}

func (e *end) happened(events uint32) {
	broken := events&unix.EPOLLERR != 0
	e.last = e.last || events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
	e.readable = e.readable || e.last || events&unix.EPOLLIN != 0
	e.writable = e.writable || events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0
	switch k := e.link; {
	case k.call != nil && e == &k.endpoint:
		k.heard(events)
	case broken && (k.call != nil || k.from(e).over): // there is nothing to read by which to find out
		e.broken = true
		k.breakOff()
	default:
		k.goOn()
	}
}

// from is the stream of what e says.
func (k *link) from(e *end) *stream {
	if e == &k.caller {
		return &k.in
	}
	return &k.out
}

// end: the loop ends.
func (e *end) end() { e.link.end() }

func (e *end) close() {
	if e.fd < 0 {
		return
	}
	e.link.loop.slots.drop(e.ticket)
	if e.link.reset && !e.broken {
		breakOff(e.fd)
	} else {
		closeFile(e.fd)
	}
	e.fd = -1
}
