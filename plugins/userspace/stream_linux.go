// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bytes"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A stream carries what one end of a link says to the other. What it has fetched it
// passes on before it fetches more, so a slow reader slows the writer down.
type stream struct {
	link     *link
	from, to *end
	count    *atomic.Uint64 // of bytes passed on

	rest []byte // was fetched, and is to be passed on
	pipe *pipe  // nil, or has left bytes that are to be passed on
	left int
	bulk int8 // how much it has looked like bulk of late
	said bool // from has said all
	over bool // and to was told, or takes no more
}

// piecesInARow is how many pieces a stream carries before others have a turn.
const piecesInARow = 16

// goOn goes as far as it can without waiting. It is true when it could go on, and
// gives way to others.
func (s *stream) goOn() bool {
	for range piecesInARow {
		switch {
		case s.link.ended || s.over || !s.passOn():
			return false
		case s.said:
			s.finish()
			return false
		case !s.from.readable:
			return false
		}
		s.fetch()
	}
	return true
}

// fetch takes what from says, and passes it on.
func (s *stream) fetch() {
	if s.bulk >= bulkAfter && s.fetchBulk() {
		return
	}
	talk := s.link.loop.talk
	n, err := read(s.from.fd, talk)
	if !s.fetched(n, err) {
		return
	}
	if n < len(talk) && !s.from.last {
		s.from.readable = false // an event tells of more
	}
	s.rest = talk[:n]
	s.passOn()
	s.rest = bytes.Clone(s.rest) // of what is left, for talk is everyone's
}

// fetched says whether there is something to pass on.
func (s *stream) fetched(n int, err error) bool {
	switch {
	case err == unix.EAGAIN:
		s.from.readable = false
	case err != nil:
		s.from.broken = true
		s.link.breakOff() // nobody is left to hear what to still says
	case n == 0:
		s.said = true
	default:
		s.weigh(n)
		return true
	}
	return false
}

// passOn gives to what was fetched. It is false when to does not take all of it now.
func (s *stream) passOn() bool {
	for len(s.rest)+s.left > 0 {
		if !s.to.writable {
			return false
		}
		n, err := s.give()
		s.count.Add(uint64(n))
		switch {
		case err == unix.EAGAIN:
			s.to.writable = false
		case err != nil:
			s.refused()
			return false
		}
	}
	return true
}

// give is one piece.
func (s *stream) give() (n int, err error) {
	if s.pipe != nil {
		return s.giveBulk()
	}
	n, err = write(s.to.fd, s.rest)
	s.rest = s.rest[n:]
	return n, err
}

// refused: to takes nothing any more. What it said before is still to be carried
// back; the stream that does so comes to the break itself.
func (s *stream) refused() {
	s.drop()
	s.over = true
	s.link.reset = true
	s.to.broken, s.to.readable, s.to.last = true, true, true
	s.link.goOnSoon()
}

// finish tells to that from has said all.
func (s *stream) finish() {
	s.over = true
	switch k := s.link; {
	case k.reset:
		k.end()
	case !k.in.over || !k.out.over:
		shutdown(s.to.fd)
	}
}

// drop forgets what was not passed on.
func (s *stream) drop() {
	s.rest, s.left = nil, 0
	if s.pipe != nil {
		s.pipe.close()
		s.pipe = nil
	}
}
