// SPDX-License-Identifier: Apache-2.0

package relay

import "golang.org/x/sys/windows"

// Why Listen and Probe fail, to be asked for with errors.Is.
const (
	ErrNotLocal   = windows.WSAEADDRNOTAVAIL // no interface of this machine has the address
	ErrNotAllowed = windows.WSAEACCES        // this process may not listen on the port
	ErrInUse      = windows.WSAEADDRINUSE    // another program has the port
)

const (
	errTooMany    = windows.WSAEMFILE
	errTooManyAll = windows.WSAENOBUFS
	errTooLong    = windows.WSAEMSGSIZE
)
