// SPDX-License-Identifier: Apache-2.0

//go:build unix

package userspace

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// standing asks the kernel whether it still has the socket.
func standing(c syscall.Conn) error {
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
