// SPDX-License-Identifier: Apache-2.0

package bounded

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadFileIn: links begin at the root that is given, and none leads out of it.
func TestReadFileIn(t *testing.T) {
	top := t.TempDir()
	root := filepath.Join(top, "root")
	err := errors.Join(
		os.MkdirAll(filepath.Join(root, "etc"), 0o755),
		os.WriteFile(filepath.Join(top, "outside"), []byte("outside"), 0o600),
		os.WriteFile(filepath.Join(root, "etc/inside"), []byte("inside"), 0o600),
		os.Symlink("/etc/inside", filepath.Join(root, "absolute")),
		os.Symlink("../outside", filepath.Join(root, "up")),
		os.Symlink(filepath.Join(top, "outside"), filepath.Join(root, "out")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"/etc/inside": "inside", "/absolute": "inside", "/up": "", "/out": "", "../outside": "", "/etc": ""} {
		data, err := ReadFileIn(root, name, 100)
		if errors.Is(err, unix.ENOSYS) {
			t.Skip("needs openat2: Linux 5.6")
		}
		if string(data) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := ReadFileIn(root, "/etc/inside", 3); err == nil {
		t.Error("a file that is larger than the limit was read")
	}
}
