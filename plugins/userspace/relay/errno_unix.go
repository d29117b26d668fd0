// SPDX-License-Identifier: Apache-2.0

//go:build unix

package relay

import "golang.org/x/sys/unix"

// Why Listen and Probe fail, to be asked for with errors.Is.
const (
	ErrNotLocal   = unix.EADDRNOTAVAIL // no interface of this machine has the address
	ErrNotAllowed = unix.EACCES        // this process may not listen on the port
	ErrInUse      = unix.EADDRINUSE    // another program has the port
)

const (
	errTooMany    = unix.EMFILE
	errTooManyAll = unix.ENFILE
	errTooLong    = unix.EMSGSIZE
)
