// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// tellFrom has the kernel tell of what can be read of c once it is that many bytes
// (SO_RCVLOWAT, socket(7)). That the other side closed it is told at once. Where it cannot be
// had, each packet is told of, which costs more and changes nothing else.
func tellFrom(c net.Conn, bytes int) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return // it is closed
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes)
	})
}
