// SPDX-License-Identifier: Apache-2.0

package userspace

import "golang.org/x/sys/windows"

// Why a socket cannot be opened, or made, in the kernel's words.
const (
	errNotOurs    = windows.WSAEADDRNOTAVAIL
	errNotAllowed = windows.WSAEACCES
	errInUse      = windows.WSAEADDRINUSE
	errTooMany    = windows.WSAEMFILE
	errTooManyAll = windows.WSAENOBUFS
	errRefused    = windows.WSAECONNREFUSED
	errTooLong    = windows.WSAEMSGSIZE
)
