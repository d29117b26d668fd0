// SPDX-License-Identifier: Apache-2.0

//go:build unix

package addresses

import (
	"errors"
	"os"
	"syscall"
)

// errLocked says that another process, or another part of this one, has the lock.
var errLocked = errors.New("it is locked")

// tryLock locks the file of that name, which it makes. The lock ends when the file is closed, or
// with the process.
func tryLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errLocked
	}
	return nil, err
}
