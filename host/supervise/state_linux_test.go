// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOddHandles: whatever lies where the way to a process is written down, the plugin is
// started, and waits for nothing.
func TestOddHandles(t *testing.T) {
	for name, lay := range map[string]func(string) error{
		"pipe":      func(f string) error { return syscall.Mkfifo(f, 0o600) },
		"endless":   func(f string) error { return os.Symlink("/dev/zero", f) },
		"huge":      func(f string) error { return errors.Join(os.WriteFile(f, nil, 0o600), os.Truncate(f, 1<<40)) },
		"no JSON":   func(f string) error { return os.WriteFile(f, []byte("{"), 0o600) },
		"directory": func(f string) error { return os.Mkdir(f, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newHarness(t, "serve")
			file := handleFile(y.plugin.StateDir, "")
			if err := errors.Join(os.MkdirAll(y.plugin.StateDir, 0o700), lay(file)); err != nil {
				t.Fatal(err)
			}
			y.run()
			y.untilServing()
			y.until("written down", func(Status) bool { _, err := readHandle(y.plugin.StateDir, ""); return err == nil })
			y.mu.Lock()
			defer y.mu.Unlock()
			if said := strings.Join(y.transitions, "\n"); !strings.Contains(said, file) {
				t.Errorf("it is not said:\n%s", said)
			}
		})
	}
}

// TestHandleIsWrittenAgain: a way to the process that was lost is written down again.
func TestHandleIsWrittenAgain(t *testing.T) {
	y := newHarness(t, "serve")
	y.run()
	serving := y.untilServing()
	if err := os.RemoveAll(y.plugin.StateDir); err != nil {
		t.Fatal(err)
	}
	y.until("written again", func(Status) bool {
		h, err := readHandle(y.plugin.StateDir, "")
		return err == nil && h.PID == serving.PID
	})
}

// TestNoPlaceForTheHandle: a state directory that is full, or read-only, is said for as long
// as it is so, and the plugin serves meanwhile.
func TestNoPlaceForTheHandle(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: to mount a file system")
	}
	for name, c := range map[string]struct{ spoil, mend func(dir string) error }{
		"full": {
			func(dir string) error {
				return errors.Join(unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"), fill(filepath.Join(dir, "filler")))
			},
			func(dir string) error { return os.Remove(filepath.Join(dir, "filler")) },
		},
		"read-only": {
			func(dir string) error { return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "size=64k") },
			func(dir string) error { return unix.Mount("", dir, "", unix.MS_REMOUNT, "size=64k") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			y := newHarness(t, "serve")
			if err := os.MkdirAll(y.plugin.StateDir, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(y.plugin.StateDir, unix.MNT_DETACH) })
			if err := c.spoil(y.plugin.StateDir); err != nil {
				t.Skipf("needs the right to mount: %v", err)
			}
			y.run()
			y.untilServing()
			y.until("said", func(s Status) bool { return strings.Contains(s.Unwritten, "process.json") })
			if err := c.mend(y.plugin.StateDir); err != nil {
				t.Fatal(err)
			}
			y.until("written", func(s Status) bool { return s.Unwritten == "" })
			if _, err := readHandle(y.plugin.StateDir, ""); err != nil {
				t.Error(err)
			}
			y.stop() // it works in that directory
		})
	}
}

// fill makes a file that takes all the room there is.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for chunk := make([]byte, 4096); ; {
		if _, err := f.Write(chunk); errors.Is(err, unix.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
