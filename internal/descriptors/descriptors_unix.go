// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package descriptors says how many file descriptors this process may hold, and what part of them callers get.
package descriptors

import "syscall"

// unknown is what is assumed where the kernel does not say.
const unknown = 1024

// Limit returns how many descriptors this process may hold. At its start Go has raised the soft limit to the
// hard one; what it executes gets the former back.
func Limit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return unknown
	}
	return int(min(uint64(l.Cur), 1<<20))
}
