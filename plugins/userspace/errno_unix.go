// SPDX-License-Identifier: Apache-2.0

//go:build unix

package userspace

import "golang.org/x/sys/unix"

// Why a socket cannot be opened, or made, in the kernel's words.
const (
	errNotOurs    = unix.EADDRNOTAVAIL
	errNotAllowed = unix.EACCES
	errInUse      = unix.EADDRINUSE
	errTooMany    = unix.EMFILE
	errTooManyAll = unix.ENFILE
	errRefused    = unix.ECONNREFUSED
	errTooLong    = unix.EMSGSIZE
)
