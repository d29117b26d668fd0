// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"net"
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
			s.served("tcp", s.net+"10:18080")

			s.until("the mode is written down", func() error { _, err := os.Stat(s.path("state/mode.json")); return err })
			if err := c.spoil(state); err != nil {
				t.Fatal(err)
			}
			_ = syscall.Kill(s.plugin(), syscall.SIGKILL)
			s.manifest("web.yaml", tcpService("web", "NET.11", 18080, "NET.101"))
			s.served("tcp", s.net+"11:18080")

			s.signal(syscall.SIGTERM)
			s.start()
			s.manifest("web.yaml", tcpService("web", "NET.12", 18080, "NET.101"))
			s.served("tcp", s.net+"12:18080")
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

// TestOddStateFiles: a host starts and serves whatever it finds in place of its state files.
func TestOddStateFiles(t *testing.T) {
	t.Parallel()
	files := []string{"mode.json", "mode.json.new"}
	for name, lay := range map[string]func(string) error{
		"pipes":   func(f string) error { return syscall.Mkfifo(f, 0o600) },
		"endless": func(f string) error { return os.Symlink("/dev/zero", f) },
		"garbage": func(f string) error { return os.WriteFile(f, []byte(`{"serving":"../x","plan":7`), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servingSystem(t)
			s.signal(syscall.SIGTERM)
			for _, file := range files {
				path := filepath.Join(s.path("state"), file)
				_ = os.Remove(path)
				if err := lay(path); err != nil {
					t.Fatal(err)
				}
			}
			s.start()
			s.manifest("web.yaml", tcpService("web", "NET.11", 18080, "NET.101"))
			s.served("tcp", s.net+"11:18080")
			s.until("an event reports that mode.json is not used", func() error { return s.event("StateNotUsed", "mode.json") })
		})
	}
}

// TestStartsOverWhatWasLeft: a host starts beside sockets that a killed host left, and removes them.
func TestStartsOverWhatWasLeft(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	stale := s.path("state/sockets/plugin-dir123")
	if err := os.MkdirAll(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(stale, "plugin456"), s.path("admin.sock.new")} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	s.start()
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", stale, err)
	}
	s.serving()
}
