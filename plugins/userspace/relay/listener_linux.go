// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// A loopListener is a listener that is watched by one loop. What it accepts is shared
// out among all loops.
type loopListener struct {
	loop *loop
	at   netip.AddrPort
	once sync.Once

	mu sync.Mutex // guards fd, so that no other file is mistaken for it
	fd int        // -1: closed

	// The loop's own:
	accept  acceptor
	token   token
	backoff backoff
}

func (l *loopListener) start(accept acceptor) {
	l.once.Do(func() {
		l.loop.post(func() { l.watch(accept) })
	})
}

func (l *loopListener) watch(accept acceptor) {
	l.accept = accept
	err := l.use(func(fd int) (err error) {
		l.token, err = l.loop.watch(fd, unix.EPOLLIN, l)
		return err
	})
	if err != nil && !errors.Is(err, net.ErrClosed) {
		l.loop.relay.log.Load().Error("cannot accept", "at", "tcp "+l.at.String(), "err", err, "try", "sysctl fs.epoll.max_user_watches: raise it")
	}
}

// use calls f with the socket.
func (l *loopListener) use(f func(fd int) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd < 0 {
		return net.ErrClosed
	}
	return f(l.fd)
}

func (l *loopListener) port() (port uint16) {
	_ = l.use(func(fd int) error { port = portOf(fd); return nil }) // zero when it is closed
	return port
}

func (l *loopListener) alive() error {
	return l.use(func(fd int) error { _, err := unix.Getsockname(fd); return err })
}

// Close accepts what waits in the socket, which the kernel would reset, and nothing from then on.
func (l *loopListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd < 0 {
		return net.ErrClosed
	}
	waiting := acceptRest(l.fd)
	err := unix.Close(l.fd)
	l.fd = -1
	l.loop.relay.counters.dialing.Add(int64(len(waiting)))
	if !l.loop.post(func() { l.last(waiting) }) {
		for _, c := range waiting {
			l.loop.giveUp(c)
		}
	}
	return err
}

// acceptRest accepts all that waits in a socket. What calls from then on is not heard, and calls
// again a second later: by then the socket is closed, and another one may listen there.
func acceptRest(fd int) (all []accepted) {
	_ = dropFirst(fd)   // without it, one that calls in this very moment may be reset
	for range backlog { // more cannot wait; without the filter, more may come
		var c accepted
		var err error
		if c.fd, c.from, err = accept(fd); err == nil {
			all = append(all, c)
		} else if err != unix.EINTR && err != unix.ECONNABORTED {
			break
		}
	}
	return all
}

// last is called in the loop when the socket is closed.
func (l *loopListener) last(waiting []accepted) {
	delete(l.loop.watchers, l.token)
	l.loop.timers.stop(l)
	for _, c := range waiting {
		if l.accept == nil { // it was never started
			l.loop.giveUp(c)
			continue
		}
		l.loop.admit(c, l.accept)
	}
}

func (l *loopListener) onClose() { l.Close() }

// onEvent accepts one connection. The kernel reports the socket again when there are
// more: accepting until there are none costs more than an event.
func (l *loopListener) onEvent(uint32) {
	var c accepted
	err := l.use(func(fd int) (err error) {
		if c.fd, c.from, err = accept(fd); err == nil {
			l.loop.relay.counters.dialing.Add(1) // before the socket can be closed
		}
		return err
	})
	switch {
	case err == nil:
		l.backoff.reset()
		l.loop.admit(c, l.accept)
	case errors.Is(err, net.ErrClosed) || transient(err):
	default:
		l.loop.timers.start(l, l.backoff.next(err))
		_ = l.use(func(fd int) error { return l.loop.poll.change(fd, 0, l.token) })
	}
}

// onTime accepts again after a pause.
func (l *loopListener) onTime() {
	_ = l.use(func(fd int) error { return l.loop.poll.change(fd, unix.EPOLLIN, l.token) })
}

// transient reports whether err is of one connection only, or of none.
func transient(err error) bool {
	switch err {
	case unix.EAGAIN, unix.EINTR, unix.ECONNABORTED:
		return true
	}
	return false
}

// An accepted is a conn.
type accepted struct {
	fd   int
	from netip.AddrPort
}

func (c accepted) remote() netip.Addr { return c.from.Addr() }

func (c accepted) original() (netip.AddrPort, error) {
	return originalDestination(c.fd, c.from.Addr().Is4())
}
