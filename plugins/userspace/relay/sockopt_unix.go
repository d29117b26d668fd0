// SPDX-License-Identifier: Apache-2.0

//go:build unix

package relay

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// reusePort lets another process of the same user listen on the same port too: a
// successor, before this one closes. A port that the kernel is to choose is not shared,
// or it might choose one that this process has.
func reusePort(_, address string, c syscall.RawConn) error {
	if strings.HasSuffix(address, ":0") {
		return nil
	}
	var inner error
	err := c.Control(func(fd uintptr) { inner = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	if err == nil {
		err = inner
	}
	if err != nil {
		return fmt.Errorf("share a port: %w", err)
	}
	return nil
}

// alive asks the kernel whether it still has the socket.
func alive(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("look at a socket: %w", err)
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { _, inner = unix.Getsockname(int(fd)) }); err != nil {
		return fmt.Errorf("look at a socket: %w", err)
	}
	return inner
}

// bindOnce binds a TCP socket and closes it at once. It does not listen, so no client is
// ever answered.
func bindOnce(at netip.AddrPort) error {
	domain, addr := sockaddr(at)
	fd, err := unix.Socket(domain, unix.SOCK_STREAM, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("let a socket take a port in TIME_WAIT: %w", err)
	}
	if err := unix.Bind(fd, addr); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

func sockaddr(at netip.AddrPort) (domain int, addr unix.Sockaddr) {
	port := int(at.Port())
	if ip := at.Addr(); ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: at.Addr().As16()}
}
