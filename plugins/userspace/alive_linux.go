// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keepAll has all connections of a listener kept alive: they have it from its
// socket, and none need be told.
func keepAll(l *net.ListenConfig) {
	before := l.Control
	l.KeepAlive = -1
	l.Control = func(network, address string, c syscall.RawConn) error {
		return errors.Join(before(network, address, c), kept(c))
	}
}

func kept(c syscall.RawConn) error {
	var inner error
	err := c.Control(func(fd uintptr) {
		inner = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAlive.Idle/time.Second)),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAlive.Interval/time.Second)),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAlive.Count),
		)
	})
	if err = errors.Join(err, inner); err != nil {
		return fmt.Errorf("have connections kept alive: %w", err)
	}
	return nil
}
