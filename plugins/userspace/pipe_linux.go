// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A pipe is the kernel's way to move bytes between two sockets.
type pipe struct{ out, in int }

// pipeSize is what a pipe holds unasked. Larger ones count against a limit that a
// user's processes share.
const pipeSize = 64 << 10

// pipes are those that nobody uses now, and empty.
type pipes struct{ free chan *pipe }

func newPipes() pipes { return pipes{make(chan *pipe, 16)} }

func (p *pipes) lend() (*pipe, error) {
	select {
	case got := <-p.free:
		return got, nil
	default:
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	return &pipe{out: fds[0], in: fds[1]}, nil
}

// giveBack takes an empty pipe.
func (p *pipes) giveBack(empty *pipe) {
	select {
	case p.free <- empty:
	default:
		empty.close()
	}
}

// close closes those that nobody uses now.
func (p *pipes) close() {
	for {
		select {
		case got := <-p.free:
			got.close()
		default:
			return
		}
	}
}

func (p *pipe) close() {
	unix.Close(p.out)
	unix.Close(p.in)
}
