// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// backlog is how many connections may wait to be accepted; the kernel lowers it to
// net.core.somaxconn.
const backlog = 1<<16 - 1

// listenAt makes a socket that listens. Connections that it accepts inherit its options.
func listenAt(at netip.AddrPort) (fd int, err error) {
	domain, addr := sockaddr(at)
	fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	set := []error{
		setOption(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		setKeepAlive(fd),
	}
	if domain == unix.AF_INET6 {
		set = append(set, setOption(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1))
	}
	if at.Port() != 0 {
		set = append(set, setOption(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)) // see reusePort
	}
	err = errors.Join(set...)
	if err == nil {
		err = unix.Bind(fd, addr)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listen: %w", err)
	}
	return fd, nil
}

// setKeepAlive has the kernel find out when the other end of fd is gone without a word.
func setKeepAlive(fd int) error {
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

// connectTo begins to connect to an endpoint. The socket is writable when that has
// accepted.
func connectTo(ep netip.AddrPort, mark uint32) (fd int, err error) {
	fd, err = newSocket(ep.Addr())
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	err = setOption(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if mark != 0 && err == nil {
		err = setOption(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark))
	}
	if err == nil {
		err = setKeepAlive(fd)
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

// socketError returns why fd failed.
func socketError(fd int) error {
	number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	return unix.Errno(number)
}
