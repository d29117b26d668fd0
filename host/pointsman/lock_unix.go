// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// lockState makes the state directory, and makes sure that one host at a time uses
// it. The kernel ends the lock with the process. The directory itself is locked, so that
// it holds where no file can be made, or the file was deleted; and the file, for hosts that
// know only of that.
func lockState(dir string) (io.Closer, error) {
	if err := statefile.MakeDir(dir); err != nil {
		return nil, fmt.Errorf("make the state directory: %w; try: --state-dir DIR, or as root", err)
	}
	if err := statefile.Guarded(dir); err != nil {
		return nil, fmt.Errorf("%w: %w (--state-dir DIR)", errUntrusted, err)
	}
	locked, err := lock(dir, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	file, err := lock(filepath.Join(dir, "host.lock"), os.O_CREATE|os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK)
	switch {
	case err == nil:
		return locks{locked, file}, nil
	case errors.Is(err, errInUse), errors.Is(err, os.ErrPermission):
		_ = locked.Close()
		return nil, err
	}
	return locked, nil // it cannot be written there, or something else lies in its place
}

type locks [2]io.Closer

func (l locks) Close() error { return errors.Join(l[0].Close(), l[1].Close()) }

// lockTimeout is for what locks a directory for a moment, as systemd-tmpfiles does.
const lockTimeout = time.Second

func lock(path string, flags int) (io.Closer, error) {
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state directory: %w; try: --state-dir DIR, or as root", err)
	}
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(lockTimeout / 20) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			_ = f.Close()
			return nil, fmt.Errorf("lock the state directory: %s: %w", path, err)
		case time.Now().After(deadline):
			_ = f.Close()
			return nil, fmt.Errorf("the state directory cannot be locked (%s): %w; stop it, or set stateDir and adminSocket to others", path, errInUse)
		}
	}
}
