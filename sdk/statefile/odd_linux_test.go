// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// odd creates files at path that are not regular.
var odd = map[string]func(path string) error{
	"pipe":         func(path string) error { return syscall.Mkfifo(path, 0o600) },
	"link":         func(path string) error { return os.Symlink("/dev/zero", path) },
	"link to file": func(path string) error { return os.Symlink("/etc/hostname", path) },
	"dead link":    func(path string) error { return os.Symlink("/nowhere/at/all", path) },
	"directory":    func(path string) error { return os.Mkdir(path, 0o700) },
	"device":       func(path string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|5) }, // /dev/zero
}

// TestOddFiles: Read refuses such files without blocking, and Write replaces them or fails.
func TestOddFiles(t *testing.T) {
	for name, make := range odd {
		for _, at := range []string{"mode.json", "mode.json.new"} {
			t.Run(name+" "+at, func(t *testing.T) {
				dir := t.TempDir()
				file := filepath.Join(dir, "mode.json")
				if err := make(filepath.Join(dir, at)); errors.Is(err, os.ErrPermission) {
					t.Skip("needs root: to make a device")
				} else if err != nil {
					t.Fatal(err)
				}
				done := time.AfterFunc(time.Minute, func() { panic("blocked") })
				defer done.Stop()
				if at == "mode.json" {
					if _, err := Read(file); !errors.Is(err, ErrUnusable) {
						t.Errorf("read: %v", err)
					}
				}
				if name == "directory" && at == "mode.json" {
					if err := Write(file, []byte("x")); err == nil {
						t.Error("a directory was replaced")
					}
					return
				}
				if err := Write(file, []byte("x")); err != nil {
					t.Fatalf("write: %v", err)
				}
				if got, err := Read(file); string(got) != "x" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
	}
}
