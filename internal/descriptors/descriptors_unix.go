// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package descriptors limits connections by the number of file descriptors that this process may have open.
package descriptors

import "syscall"

// defaultLimit is the limit if the kernel does not report one.
const defaultLimit = 1024

// Limit returns how many descriptors this process may have open. Go raises the soft limit to the hard limit at the
// start, and restores it for child processes.
func Limit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return defaultLimit
	}
	return int(min(uint64(l.Cur), 1<<20))
}
