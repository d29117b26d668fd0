// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sdktest

import (
	"errors"
	"syscall"
)

// cannotSend reports whether err is this machine's, and no packet was sent.
func cannotSend(err error) bool {
	for _, e := range []syscall.Errno{syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
