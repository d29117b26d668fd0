// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// This file is how sockets of TCP are made.

// maxWaiting is how many callers may wait to be taken in; the kernel lowers it to
// net.core.somaxconn.
const maxWaiting = 1<<16 - 1

// listenAt is a socket that listens at p. What is said of it holds for connections
// that come in by it: they need not be told.
func listenAt(p place) (fd int, err error) {
	domain, addr := sockaddr(p)
	fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	said := []error{
		setOption(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		keptAlive(fd),
	}
	if domain == unix.AF_INET6 {
		said = append(said, setOption(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1))
	}
	if p.addr.Port() != 0 {
		said = append(said, setOption(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)) // see share
	}
	err = errors.Join(said...)
	if err == nil {
		err = unix.Bind(fd, addr)
	}
	if err == nil {
		err = unix.Listen(fd, maxWaiting)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listen: %w", err)
	}
	return fd, nil
}

// keptAlive has the kernel find out when the other end of fd is gone.
func keptAlive(fd int) error {
	return errors.Join(
		setOption(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAlive.Idle/time.Second)),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAlive.Interval/time.Second)),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAlive.Count),
	)
}

func portOf(fd int) uint16 {
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return 0
	}
	return addrPort(addr).Port()
}

// callTo begins to call an endpoint. Its socket is writable when that has
// answered.
func callTo(ep netip.AddrPort, mark uint32) (fd int, err error) {
	fd, err = newSocket(ep.Addr())
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	err = setOption(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if mark != 0 && err == nil {
		err = setOption(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark))
	}
	if err == nil {
		err = keptAlive(fd)
	}
	if err == nil {
		err = connect(fd, ep)
	}
	if err != nil && err != unix.EINPROGRESS {
		closeFile(fd)
		return -1, fmt.Errorf("connect: %w", err)
	}
	return fd, nil
}

// failure is why fd is broken.
func failure(fd int) error {
	number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	return unix.Errno(number)
}
