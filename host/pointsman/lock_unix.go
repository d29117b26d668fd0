// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// lockTimeout outlasts programs that lock a directory for a moment, as systemd-tmpfiles does.
const lockTimeout = time.Second

// lockState creates the state directory and locks it for one host. It locks the directory, not a file
// in it, because a file can be deleted, or cannot be created on a read-only file system. The kernel
// releases the lock when the process ends.
func lockState(dir string) (io.Closer, error) {
	if err := statefile.MakeDir(dir); err != nil {
		return nil, fmt.Errorf("create the state directory: %w; try: --state-dir DIR, or as root", err)
	}
	if err := statefile.Guarded(dir); err != nil {
		return nil, fmt.Errorf("%w: %w (--state-dir DIR)", errUntrusted, err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock the state directory: %w; try: --state-dir DIR, or as root", err)
	}
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(lockTimeout / 20) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("lock the state directory %s: %w", dir, err), f.Close())
		case time.Now().After(deadline):
			return nil, errors.Join(fmt.Errorf("the state directory cannot be locked (%s): %w; stop it, or set stateDir and adminSocket to others", dir, errInUse), f.Close())
		}
	}
}
