// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/windows"
)

const careful = 0

// settle has nothing to do: directories cannot be synced.
func settle(string) error { return nil }

// Guarded has nothing to say: folders that MakeDir makes are closed to other users, and what an
// administrator opens to them is not looked at.
func Guarded(string) error { return nil }

// TryLock locks the file at path, which it makes. The lock ends when the file is closed, or with the
// process. Where another one has the lock, the error is ErrLocked.
func TryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		err = ErrLocked
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// MakeDir makes dir, and the folders that lead to it, where they are not there yet: for this user,
// administrators and the system alone, whatever the folder above passes on.
func MakeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return &os.PathError{Op: "mkdir", Path: dir, Err: windows.ERROR_DIRECTORY}
	} else if err == nil {
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := MakeDir(parent); err != nil {
			return err
		}
	}
	me, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return fmt.Errorf("ask for this process's user: %w", err)
	}
	descriptor, err := windows.SecurityDescriptorFromString(fmt.Sprintf("D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;%s)", me.User.Sid))
	if err != nil {
		return fmt.Errorf("make folder %s: %w", dir, err)
	}
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	only := &windows.SecurityAttributes{SecurityDescriptor: descriptor}
	only.Length = uint32(unsafe.Sizeof(*only))
	if err := windows.CreateDirectory(path, only); err != nil && !errors.Is(err, windows.ERROR_ALREADY_EXISTS) {
		return &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	return nil
}
