// SPDX-License-Identifier: Apache-2.0

//go:build unix

package userspace

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// share lets another process of the same user listen on the same port too: our
// successor, before we let go. A port that the kernel is to choose is not shared, or
// it might choose one that we have.
func share(_, address string, c syscall.RawConn) error {
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
