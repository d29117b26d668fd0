// SPDX-License-Identifier: Apache-2.0

package userspace

// What comes in large pieces several times in a row is bulk: it is moved inside the
// kernel. The small talk of most connections is not worth it.
const (
	largePiece = 16 << 10
	bulkAfter  = 4
	bulkMost   = 2 * bulkAfter // so many small pieces in a row are small talk again
)

// weigh notes that a piece of n bytes came.
func (s *stream) weigh(n int) {
	if n >= largePiece {
		s.bulk = min(s.bulk+1, bulkMost)
	} else {
		s.bulk = max(s.bulk-1, 0)
	}
}

// fetchBulk is fetch by a pipe, which it has only while there is something in it.
// It is false when there is no pipe to be had.
func (s *stream) fetchBulk() bool {
	pipes := &s.link.loop.pipes
	pipe, err := pipes.lend()
	if err != nil {
		s.bulk = 0
		return false
	}
	n, err := move(s.from.fd, pipe.in, pipeSize)
	if !s.fetched(n, err) {
		pipes.giveBack(pipe)
		return true
	}
	s.pipe, s.left = pipe, n
	s.passOn()
	return true
}

// giveBulk is give from the pipe.
func (s *stream) giveBulk() (n int, err error) {
	n, err = move(s.pipe.out, s.to.fd, s.left)
	s.left -= n
	if s.left == 0 {
		s.link.loop.pipes.giveBack(s.pipe)
		s.pipe = nil
	}
	return n, err
}
