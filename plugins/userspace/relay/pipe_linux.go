// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"

	"golang.org/x/sys/unix"
)

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
