// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// errLocked says that another process, or another part of this one, has the lock.
var errLocked = errors.New("it is locked")

// tryLock locks the file of that name, which it makes. The lock ends when the file is closed, or
// with the process.
func tryLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		err = errLocked
	}
	return nil, err
}
