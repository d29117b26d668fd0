// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// What comes in large pieces several times in a row is bulk: from then on it is
// moved inside the kernel. The small talk of most connections is not worth the
// two descriptors of a pipe.
const (
	largePiece = 16 << 10
	bulkAfter  = 4
)

// Why one way of carrying is left for the other.
var (
	errBulk   = errors.New("large pieces come in")
	errNoPipe = errors.New("no pipe to be had")
)

// carry moves bytes until from has said all (no error), from breaks off, or to
// takes no more. It holds a buffer or a pipe only while there is something in it.
func (p *pump) carry() (readErr, writeErr error) {
	in, err := p.from.SyscallConn()
	if err != nil {
		return err, nil
	}
	for {
		readErr, writeErr = p.talk(in)
		if readErr == errBulk {
			readErr, writeErr = p.splice(in)
		}
		switch {
		case errors.Is(readErr, errNoPipe):
		case readErr == io.EOF:
			return nil, nil
		default:
			return readErr, writeErr
		}
	}
}

// talk is carry for small pieces. It ends with errBulk when they are large.
func (p *pump) talk(in syscall.RawConn) (readErr, writeErr error) {
	r := newReader(&p.relay.buffers)
	for large := 0; large < bulkAfter; {
		buf, n, err := r.read(in)
		if err != nil {
			return err, nil
		}
		_, err = p.to.Write(buf[:n])
		p.relay.buffers.giveBack(buf)
		if err != nil {
			return nil, err
		}
		p.bytes.Add(uint64(n))
		if large++; n < largePiece {
			large = 0
		}
	}
	return errBulk, nil
}

// A reader waits until there is something to read, and only then borrows a buffer.
type reader struct {
	buffers *buffers
	try     func(fd uintptr) bool // made once, because it is called for each read
	buf     *buffer
	n       int
	err     error
}

func newReader(b *buffers) *reader {
	r := &reader{buffers: b}
	r.try = func(fd uintptr) bool {
		r.buf = r.buffers.lend()
		r.n, r.err = unix.Read(int(fd), r.buf[:])
		for r.err == unix.EINTR {
			r.n, r.err = unix.Read(int(fd), r.buf[:])
		}
		if r.err == nil && r.n > 0 {
			return true
		}
		r.buffers.giveBack(r.buf)
		r.buf = nil
		return r.err != unix.EAGAIN
	}
	return r
}

// read returns a borrowed buffer with n bytes in it, or an error: io.EOF at the
// end.
func (r *reader) read(in syscall.RawConn) (*buffer, int, error) {
	if err := in.Read(r.try); err != nil {
		return nil, 0, err
	}
	if r.err != nil {
		return nil, 0, r.err
	}
	if r.n == 0 {
		return nil, 0, io.EOF
	}
	return r.buf, r.n, nil
}

// splice is carry for bulk.
func (p *pump) splice(in syscall.RawConn) (readErr, writeErr error) {
	out, err := p.to.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := newSplicer(&p.relay.pipes)
	for {
		n, err := s.fill(in)
		if err != nil {
			return err, nil
		}
		if n == 0 {
			return io.EOF, nil
		}
		if err := s.drain(out); err != nil {
			return nil, err
		}
		p.bytes.Add(uint64(n))
	}
}

// A splicer moves bytes from a socket through a pipe to another. While it waits
// for the first it has no pipe.
type splicer struct {
	pipes   *pipes
	pipe    *pipe
	left    int // in the pipe
	err     error
	tryFill func(fd uintptr) bool
	tryDry  func(fd uintptr) bool
}

func newSplicer(p *pipes) *splicer {
	s := &splicer{pipes: p}
	s.tryFill, s.tryDry = s.fillOnce, s.drainOnce
	return s
}

// fill moves what there is into the pipe, and waits for it. Zero is the end.
func (s *splicer) fill(in syscall.RawConn) (int, error) {
	if err := in.Read(s.tryFill); err != nil {
		return 0, err
	}
	return s.left, s.err
}

func (s *splicer) fillOnce(fd uintptr) bool {
	if s.pipe, s.err = s.pipes.lend(); s.err != nil {
		s.err = errors.Join(errNoPipe, s.err)
		return true
	}
	s.left, s.err = move(int(fd), s.pipe.in, pipeSize)
	if s.err != nil || s.left == 0 {
		s.pipes.giveBack(s.pipe)
		s.pipe = nil
	}
	return s.err != unix.EAGAIN
}

// drain empties the pipe into out.
func (s *splicer) drain(out syscall.RawConn) error {
	err := out.Write(s.tryDry)
	if err == nil {
		err = s.err
	}
	if err != nil {
		s.pipe.close() // what is left in it is for nobody
	} else {
		s.pipes.giveBack(s.pipe)
	}
	s.pipe = nil
	return err
}

func (s *splicer) drainOnce(fd uintptr) bool {
	for s.left > 0 {
		n, err := move(s.pipe.out, int(fd), s.left)
		if err == unix.EAGAIN {
			return false
		}
		if s.err = err; err != nil {
			return true
		}
		s.left -= n
	}
	return true
}

func move(from, to, n int) (int, error) {
	for {
		moved, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			return max(int(moved), 0), err
		}
	}
}
