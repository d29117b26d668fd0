// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A door is a socket that connections come in by. Each is at one loop, which shares
// out among all whom it takes in.
type door struct {
	loop   *loop
	at     place
	begins sync.Once

	mu sync.Mutex // guards fd, so that no other file is mistaken for it
	fd int        // -1: closed

	// The loop's own:
	receive reception
	ticket  ticket
	pause   pause
	until   time.Time // it rests so long
}

func (d *door) begin(receive reception) {
	d.begins.Do(func() {
		d.loop.ask(func() { d.watch(receive) })
	})
}

func (d *door) watch(receive reception) {
	d.receive = receive
	err := d.use(func(fd int) (err error) {
		d.ticket, err = d.loop.watch(fd, unix.EPOLLIN, d)
		return err
	})
	if err != nil && !errors.Is(err, net.ErrClosed) {
		d.loop.relay.log.Load().Error("cannot take in what comes", "at", d.at.String(), "err", err, "try", "sysctl fs.epoll.max_user_watches: raise it")
	}
}

// use calls f with the socket.
func (d *door) use(f func(fd int) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd < 0 {
		return net.ErrClosed
	}
	return f(d.fd)
}

func (d *door) port() (port uint16) {
	_ = d.use(func(fd int) error { port = portOf(fd); return nil }) // zero when it is closed
	return port
}

func (d *door) stands() error {
	return d.use(func(fd int) error { _, err := unix.Getsockname(fd); return err })
}

// Close takes nobody in from now on.
func (d *door) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd < 0 {
		return net.ErrClosed
	}
	err := unix.Close(d.fd)
	d.fd = -1
	d.loop.ask(func() {
		d.loop.slots.drop(d.ticket)
		d.loop.stopResting(d)
	})
	return err
}

func (d *door) end() { d.Close() }

// happened: somebody is at the door. One is taken in, and the kernel reports it
// again when there are more: asking until there are none costs more than an event.
func (d *door) happened(uint32) {
	var a arrived
	err := d.use(func(fd int) (err error) {
		a.fd, a.from, err = accept(fd)
		return err
	})
	switch {
	case err == nil:
		d.pause.over()
		d.loop.admit(a, d.receive)
	case errors.Is(err, net.ErrClosed) || passes(err):
	default:
		d.loop.rest(d, d.pause.begin(err))
		_ = d.use(func(fd int) error { return d.loop.poll.change(fd, 0, d.ticket) })
	}
}

// open takes callers in again after a rest.
func (d *door) open() {
	_ = d.use(func(fd int) error { return d.loop.poll.change(fd, unix.EPOLLIN, d.ticket) })
}

// passes reports whether err is of one caller only, or of none.
func passes(err error) bool {
	switch err {
	case unix.EAGAIN, unix.EINTR, unix.ECONNABORTED:
		return true
	}
	return false
}

// An arrived is a connection that was just taken in.
type arrived struct {
	fd   int
	from netip.AddrPort
}

func (a arrived) remote() netip.Addr { return a.from.Addr() }

func (a arrived) meant() (netip.AddrPort, error) { return originalOf(a.fd, a.from.Addr().Is4()) }
