// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sdktest

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// reusePort lets two sockets listen on one address, as two relays do during a swap.
func reusePort(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	return errors.Join(err, set)
}
