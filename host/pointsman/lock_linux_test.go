// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUntrustedStateDirIsRefused: the error for a directory that others may change says what to do.
func TestUntrustedStateDirIsRefused(t *testing.T) {
	const stranger = 12345
	made := func(path string, mode os.FileMode, owner int) error {
		return errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode), os.Chown(path, owner, -1))
	}
	for name, c := range map[string]struct {
		parent, dir os.FileMode
		owner       int
		want        string
	}{
		"its own":                   {0o755, 0o700, os.Geteuid(), ""},
		"everyone may write":        {0o755, 0o777, os.Geteuid(), "chmod o-w"},
		"another user's":            {0o755, 0o700, stranger, "chown"},
		"everyone, one above":       {0o777, 0o700, os.Geteuid(), "chmod o-w"},
		"everyone, one above, /tmp": {0o777 | os.ModeSticky, 0o700, os.Geteuid(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.owner != os.Geteuid() && os.Geteuid() != 0 {
				t.Skip("needs root: to make another user's directory")
			}
			parent := filepath.Join(t.TempDir(), "above")
			dir := filepath.Join(parent, "state")
			if err := errors.Join(made(parent, c.parent, os.Geteuid()), made(dir, c.dir, c.owner)); err != nil {
				t.Fatal(err)
			}
			lock, err := lockState(dir)
			if err == nil {
				lock.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), parent)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestStateDirIsLocked: one host at a time uses a state directory.
func TestStateDirIsLocked(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		first, err := lockState(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lockState(dir); !errors.Is(err, errInUse) {
			t.Errorf("a second host: %v", err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadOnlyStateDirIsLocked: a host starts on a read-only file system, and locks the directory there, too.
func TestReadOnlyStateDirIsLocked(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: to mount a file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "size=64k,mode=0700"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	first, err := lockState(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := lockState(dir); !errors.Is(err, errInUse) {
		t.Errorf("a second host: %v", err)
	}
}
