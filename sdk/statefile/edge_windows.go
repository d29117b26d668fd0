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

// syncDir does nothing: directories cannot be synced on Windows.
func syncDir(string) error { return nil }

// Guarded does nothing: folders that MakeDir creates are closed to other users, and access that
// an administrator grants is not checked.
func Guarded(string) error { return nil }

// TryLock locks the file at path and creates it if necessary. The lock ends when the file is
// closed or the process ends. If another process holds the lock, the error is ErrLocked.
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

// MakeDir creates dir and its missing parents, accessible to this user, administrators and the
// system only; permissions of the parent folder are not inherited.
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
