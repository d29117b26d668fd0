// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST, and IP6T_SO_ORIGINAL_DST.
const soOriginalDst = 80

// marked makes a Dialer put mark on what it sends; zero: none.
func marked(mark uint32) func(network, address string, c syscall.RawConn) error {
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
