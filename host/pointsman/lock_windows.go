// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// lockState makes the state directory, and makes sure that one host at a time uses it. Windows
// ends the lock with the process.
func lockState(dir string) (io.Closer, error) {
	if err := statefile.MakeDir(dir); err != nil {
		return nil, fmt.Errorf("make the state directory: %w; try: --state-dir DIR, or as an administrator", err)
	}
	if err := guarded(dir); err != nil {
		return nil, fmt.Errorf("%w: %w (--state-dir DIR)", errUntrusted, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "host.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state directory: %w; try: --state-dir DIR, or as an administrator", err)
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return nil, fmt.Errorf("the state directory cannot be locked (%s): %w; stop it, or set stateDir and adminSocket to others", dir, errInUse)
	}
	return nil, fmt.Errorf("lock the state directory: %s: %w", dir, err)
}

// guarded reports which other users could change the host's state. In its usual place that goes
// for the folder above, too, in which the config file is looked for: by default Windows lets every
// user make files there.
func guarded(dir string) error {
	usual := filepath.Dir(config.UsualFile())
	if !strings.HasPrefix(strings.ToLower(filepath.Clean(dir)), strings.ToLower(usual)+`\`) {
		return statefile.Guarded(dir)
	}
	return errors.Join(statefile.Guarded(usual), statefile.Guarded(dir))
}
