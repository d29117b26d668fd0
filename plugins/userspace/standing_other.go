// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package userspace

import "syscall"

// standing asks whether the socket is still open.
func standing(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(uintptr) {})
}
