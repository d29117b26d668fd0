// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStateDirSpoiled: with a state directory that is full or read-only, this host and the next serve all the same. A
// warning stays until the state can be written again.
func TestStateDirSpoiled(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: to mount a file system")
	}
	for name, c := range map[string]struct{ spoil, mend func(dir string) error }{
		"full": {
			func(dir string) error { return fillDisk(filepath.Join(dir, "filler")) },
			func(dir string) error { return os.Remove(filepath.Join(dir, "filler")) },
		},
		"read-only": {
			func(dir string) error {
				return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
			},
			func(dir string) error { return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND, "") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.env = append(s.env, "TMPDIR="+s.dir) // a process that is not in the state leaves its socket there
			state := s.path("state")
			if err := os.Mkdir(state, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
				t.Skipf("needs the right to mount: %v", err)
			}
			t.Cleanup(func() { s.stop(); s.cmd = nil; _ = unix.Unmount(state, unix.MNT_DETACH) })
			backend(t, at(s.net+"101"))
			s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
			s.start()
			s.serving()
			s.served(s.net + "10:18080")

			s.until("the mode is written down", func() error { _, err := os.Stat(s.path("state/mode.json")); return err })
			if err := c.spoil(state); err != nil {
				t.Fatal(err)
			}
			_ = syscall.Kill(s.plugin(), syscall.SIGKILL)
			s.manifest("web.yaml", tcpService("web", "NET.11", 18080, "NET.101"))
			s.served(s.net + "11:18080")

			s.signal(syscall.SIGTERM)
			s.start()
			s.manifest("web.yaml", tcpService("web", "NET.12", 18080, "NET.101"))
			s.served(s.net + "12:18080")
			if err := c.mend(state); err != nil {
				t.Fatal(err)
			}
			s.until("all is written", func() error { return s.noWarning("W017") })
		})
	}
}

// fillDisk writes a file until the file system is full.
func fillDisk(path string) error {
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
