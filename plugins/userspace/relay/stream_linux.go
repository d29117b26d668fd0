// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A stream carries what one end of a pair sends to the other. What it has read it writes
// before it reads more, so a slow reader slows the writer down.
type stream struct {
	pair     *pair
	from, to *end
	count    *atomic.Uint64 // of bytes written

	rest  []byte // was read, and is to be written
	pipe  *pipe  // nil, or holds left bytes that are to be written
	left  int
	large int8 // rises with each large chunk that is read, and falls with each small one
	eof   bool // from has closed its side
	done  bool // and to was told, or accepts no more
}

// What comes in large chunks several times in a row is moved inside the kernel (splice).
// The small chunks of most connections are not worth it.
const (
	largeChunk  = 16 << 10
	spliceAfter = 4
	maxLarge    = 2 * spliceAfter // so many small chunks in a row end it
)

// maxChunks is how many chunks a stream carries before others get on.
const maxChunks = 16

// advance carries bytes as far as it can without waiting. It is true when it could go
// on, and yields to others.
func (s *stream) advance() bool {
	for range maxChunks {
		switch {
		case s.pair.closed || s.done || !s.flush():
			return false
		case s.eof:
			s.finish()
			return false
		case !s.from.readable:
			return false
		}
		s.read()
	}
	return true
}

// read reads a chunk, and writes it.
func (s *stream) read() {
	if s.large >= spliceAfter && s.readPipe() {
		return
	}
	scratch := s.pair.loop.scratch
	n, err := read(s.from.fd, scratch)
	if !s.noteRead(n, err) {
		return
	}
	if n < len(scratch) && !s.from.last {
		s.from.readable = false // an event tells of more
	}
	s.rest = scratch[:n]
	s.flush()
	s.rest = bytes.Clone(s.rest) // what is left, because all streams share scratch
}

// readPipe is read by a pipe, which the stream has only while there is something in it.
// It is false when there is no pipe to be had.
func (s *stream) readPipe() bool {
	pipes := &s.pair.loop.pipes
	pipe, err := pipes.lend()
	if err != nil {
		s.large = 0
		return false
	}
	n, err := splice(s.from.fd, pipe.in, pipeSize)
	if !s.noteRead(n, err) {
		pipes.giveBack(pipe)
		return true
	}
	s.pipe, s.left = pipe, n
	s.flush()
	return true
}

// noteRead returns whether there is something to write.
func (s *stream) noteRead(n int, err error) bool {
	switch {
	case err == unix.EAGAIN:
		s.from.readable = false
	case err != nil:
		s.from.broken = true
		s.pair.abort() // from is gone, so nothing that to still sends can be delivered
	case n == 0:
		s.eof = true
	case n >= largeChunk:
		s.large = min(s.large+1, maxLarge)
		return true
	default:
		s.large = max(s.large-1, 0)
		return true
	}
	return false
}

// flush writes what was read. It is false when to does not take all of it now.
func (s *stream) flush() bool {
	for len(s.rest)+s.left > 0 {
		if !s.to.writable {
			return false
		}
		n, err := s.write()
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

// write writes one chunk.
func (s *stream) write() (n int, err error) {
	if s.pipe == nil {
		n, err = write(s.to.fd, s.rest)
		s.rest = s.rest[n:]
		return n, err
	}
	n, err = splice(s.pipe.out, s.to.fd, s.left)
	s.left -= n
	if s.left == 0 {
		s.pair.loop.pipes.giveBack(s.pipe)
		s.pipe = nil
	}
	return n, err
}

// refused ends the stream because to accepts nothing any more. What to sent before is
// still to be delivered; the other stream does that, and then comes to the reset itself.
func (s *stream) refused() {
	s.drop()
	s.done = true
	s.pair.reset = true
	s.to.broken, s.to.readable, s.to.last = true, true, true
	s.pair.advanceSoon()
}

// finish tells to that from has closed its side.
func (s *stream) finish() {
	s.done = true
	switch p := s.pair; {
	case p.reset:
		p.close()
	case !p.in.done || !p.out.done:
		shutdownWrite(s.to.fd)
	}
}

// drop forgets what was not written.
func (s *stream) drop() {
	s.rest, s.left = nil, 0
	if s.pipe != nil {
		s.pipe.close()
		s.pipe = nil
	}
}

// A pipe is the kernel's way to move bytes between two sockets.
type pipe struct{ out, in int }

// pipeSize is what a pipe holds by default. Larger ones count against a limit that all
// processes of a user share.
const pipeSize = 64 << 10

// pipes are those of a loop that are empty, and that no stream uses now.
type pipes struct{ free []*pipe }

// maxFreePipes is how many are kept.
const maxFreePipes = 4

func (p *pipes) lend() (*pipe, error) {
	if last := len(p.free) - 1; last >= 0 {
		got := p.free[last]
		p.free = p.free[:last]
		return got, nil
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	return &pipe{out: fds[0], in: fds[1]}, nil
}

// giveBack takes an empty pipe.
func (p *pipes) giveBack(empty *pipe) {
	if len(p.free) == maxFreePipes {
		empty.close()
		return
	}
	p.free = append(p.free, empty)
}

// close closes those that no stream uses now.
func (p *pipes) close() {
	for _, free := range p.free {
		free.close()
	}
	p.free = nil
}

func (p *pipe) close() {
	unix.Close(p.out)
	unix.Close(p.in)
}
