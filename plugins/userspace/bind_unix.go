// SPDX-License-Identifier: Apache-2.0

//go:build unix

package userspace

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// bind takes p for TCP and lets go of it at once. It does not listen, so no
// caller is ever answered.
func bind(p place) error {
	domain, addr := sockaddr(p)
	fd, err := unix.Socket(domain, unix.SOCK_STREAM, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("let a socket take a port that rests: %w", err)
	}
	if err := unix.Bind(fd, addr); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

func sockaddr(p place) (domain int, addr unix.Sockaddr) {
	port := int(p.addr.Port())
	if ip := p.addr.Addr(); ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: p.addr.Addr().As16()}
}
