// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A poller asks the kernel which of many sockets are ready (epoll). It waits as any file
// of Go does, so a goroutine in wait holds no thread.
//
//	sockets ──▶ epoll ──▶ Go's own epoll ──▶ the goroutine in wait
type poller struct {
	fd     int
	file   *os.File
	raw    syscall.RawConn
	until  time.Time // the deadline of file
	wakeFD int       // an eventfd: written to, to end the waiting
	look   func(fd uintptr) bool
	events [128]unix.EpollEvent
	n      int // of events
	err    error
}

// A token is what an event carries to say which watcher it is for.
type token uint64

func tokenOf(e *unix.EpollEvent) token { return token(uint32(e.Fd)) | token(uint32(e.Pad))<<32 }

// wakeToken is that of wakeFD.
const wakeToken token = 0

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or os would not wait for it
		unix.Close(fd)
		return nil, fmt.Errorf("make an epoll: %w", err)
	}
	p := &poller{fd: fd, wakeFD: -1, file: os.NewFile(uintptr(fd), "epoll")}
	p.look = p.lookOnce
	if p.raw, err = p.file.SyscallConn(); err == nil {
		err = p.file.SetReadDeadline(time.Time{})
	}
	if err == nil {
		p.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = p.add(p.wakeFD, unix.EPOLLIN, wakeToken)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("make an epoll that can be waited for: %w", err)
	}
	return p, nil
}

func (p *poller) close() {
	p.file.Close()
	if p.wakeFD >= 0 {
		unix.Close(p.wakeFD)
	}
}

// add has events of fd reported with t, until fd is closed.
func (p *poller) add(fd int, events uint32, t token) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, events, t)
}

// change has other events reported of fd. Zero: none.
func (p *poller) change(fd int, events uint32, t token) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, events, t)
}

func (p *poller) control(what, fd int, events uint32, t token) error {
	event := unix.EpollEvent{Events: events, Fd: int32(t), Pad: int32(t >> 32)}
	if err := unix.EpollCtl(p.fd, what, fd, &event); err != nil {
		return fmt.Errorf("watch a socket: %w", err)
	}
	return nil
}

// wait returns what has happened, once something has, or nothing after until (zero:
// never).
func (p *poller) wait(until time.Time) ([]unix.EpollEvent, error) {
	if !until.Equal(p.until) {
		if err := p.file.SetReadDeadline(until); err != nil {
			return nil, fmt.Errorf("set when to look again: %w", err)
		}
		p.until = until
	}
	err := p.raw.Read(p.look)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil
	}
	if err == nil {
		err = p.err
	}
	return p.events[:p.n], err
}

// now returns what has happened. It does not wait.
func (p *poller) now() ([]unix.EpollEvent, error) {
	p.lookOnce(uintptr(p.fd))
	return p.events[:p.n], p.err
}

// lookOnce is false when nothing has happened.
func (p *poller) lookOnce(uintptr) bool {
	p.n, p.err = poll(p.fd, p.events[:])
	return p.n > 0 || p.err != nil
}

// wake ends the waiting. Any goroutine may call it.
func (p *poller) wake() {
	one := [8]byte{1} // in either order of bytes it is not zero, and that is all that counts
	_, _ = unix.Write(p.wakeFD, one[:])
}

// clearWake undoes wake.
func (p *poller) clearWake() {
	var count [8]byte
	_, _ = unix.Read(p.wakeFD, count[:])
}
