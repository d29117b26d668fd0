// SPDX-License-Identifier: Apache-2.0

// Package boundedtest makes files for tests that cannot be read.
package boundedtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Hung returns a folder on a file system that never answers, as that of an NFS server
// which is gone: every call that touches it, or a link into it, waits. release ends
// the waiting with an error; the end of the test does so too.
func Hung(t testing.TB) (dir string, release func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse, and root: %v", err)
	}
	dir = filepath.Join(t.TempDir(), "hung")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", fd, os.Getuid(), os.Getgid())
	if err := unix.Mount("pointsman-test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(fd)
		t.Skipf("needs to mount: %v", err)
	}
	released := false
	release = func() {
		if !released {
			released = true
			unix.Close(fd) // nothing is left to answer: all requests fail
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", dir, err)
			}
		}
	}
	t.Cleanup(release)
	return dir, release
}
