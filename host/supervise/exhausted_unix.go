// SPDX-License-Identifier: Apache-2.0

//go:build unix

package supervise

import (
	"errors"
	"os"
	"syscall"
)

// mostDescriptors returns how many this process may hold. At its start Go has raised the soft limit
// to the hard one; what it executes gets the former back.
func mostDescriptors() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return unknown
	}
	return int(min(uint64(l.Cur), 1<<20))
}

// exhausted reports whether err says that this process, or the machine, has no descriptor, no
// memory or no process left: what failed is not to blame.
func exhausted(err error) bool {
	if fork := new(os.PathError); errors.As(err, &fork) && fork.Op == "fork/exec" && errors.Is(fork, syscall.EAGAIN) {
		return true // no process may be added
	}
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOBUFS)
}

// unknown is what is assumed where the kernel does not say.
const unknown = 1024
