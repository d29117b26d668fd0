// SPDX-License-Identifier: Apache-2.0

package relay

import "golang.org/x/sys/unix"

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
	e.pair.loop.slots.drop(e.token)
	if e.pair.reset && !e.broken {
		resetFile(e.fd)
	} else {
		closeFile(e.fd)
	}
	e.fd = -1
}
