// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// withMark makes a Dialer put mark on the packets of its connections; zero: none.
func withMark(mark uint32) func(network, address string, c syscall.RawConn) error {
	if mark == 0 {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var inner error
		err := c.Control(func(fd uintptr) { inner = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)) })
		if err == nil && inner != nil {
			err = fmt.Errorf("mark a socket: %w", inner)
		}
		return err
	}
}
