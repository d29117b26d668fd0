// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// TestDurable: Write fails if the folder cannot be synced.
func TestDurable(t *testing.T) {
	dir := t.TempDir()
	blind(t, dir)
	if err := (Facts{}.WithServed("iptables").Write(dir)); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a folder that cannot be opened, and so not be synced: %v", err)
	}
}

// blind removes the permission to open dir, but not the permission to write to it.
func blind(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() == 0 {
		const nobody = 65534
		runtime.LockOSThread() // only this thread is another user's
		if err := errors.Join(os.Chown(dir, nobody, nobody), os.Chmod(filepath.Dir(dir), 0o755), syscall.Setfsuid(nobody)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(runtime.UnlockOSThread)
		t.Cleanup(func() { _ = syscall.Setfsuid(0) })
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if err := os.Chmod(dir, 0o300); err != nil {
		t.Fatal(err)
	}
}
