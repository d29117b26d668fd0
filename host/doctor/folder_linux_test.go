// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFolderFits names what is wrong with a file system, and nothing else.
func TestFolderFits(t *testing.T) {
	well := space{bytes: 1 << 30, inodes: 1 << 20}
	for _, tt := range []struct {
		what   string
		folder Folder
		change func(*space)
		want   string
	}{
		{"all is well", Folder{Boots: true, InPod: true}, func(*space) {}, ""},
		{"no count of inodes", Folder{}, func(s *space) { s.inodes, s.uncounts = 0, true }, ""},
		{"tmpfs, for as long as the node runs", Folder{}, func(s *space) { s.kind = "tmpfs" }, ""},
		{"tmpfs", Folder{Boots: true}, func(s *space) { s.kind = "tmpfs" }, "warn: F is on tmpfs, which a reboot empties"},
		{"overlay", Folder{}, func(s *space) { s.kind = "overlay" }, ""},
		{"overlay in a pod", Folder{InPod: true}, func(s *space) { s.kind = "overlay" }, "warn: F is of the container alone, and ends with it"},
		{"nfs", Folder{}, func(s *space) { s.kind = "nfs" }, "warn: F is on nfs, which may stop to answer"},
		{"read-only", Folder{}, func(s *space) { s.readOnly = true }, "fail: F is on a file system that is mounted read-only"},
		{"nearly full", Folder{}, func(s *space) { s.bytes = 1 << 20 }, "warn: the file system of F has only 1024 KiB left"},
		{"full", Folder{}, func(s *space) { s.bytes = 0 }, "fail: F is on a file system without space left"},
		{"few inodes", Folder{}, func(s *space) { s.inodes = 3 }, "warn: the file system of F has only 3 inodes left"},
		{"no inodes", Folder{}, func(s *space) { s.inodes = 0 }, "fail: F is on a file system without inodes left"},
	} {
		left := well
		tt.change(&left)
		tt.folder.Path = "F"
		got := ""
		for _, f := range tt.folder.fits(left) {
			got += string(f.Result) + ": " + f.Why + "\n"
		}
		if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}

// TestKernelFolder breaks a folder for real.
func TestKernelFolder(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts file systems")
	}
	errOpen := errors.New("it is open to others")
	for _, tt := range []struct {
		what string
		make func(t *testing.T, dir string) error // dir is not there yet
		open bool
		want string
	}{
		{"is not there", func(*testing.T, string) error { return nil }, false, "ok: DIR is not there yet"},
		{"is there", func(_ *testing.T, dir string) error { return os.Mkdir(dir, 0o700) }, false, "ok: DIR is guarded, and has "},
		{"others may write", func(_ *testing.T, dir string) error { return os.Mkdir(dir, 0o700) }, true, "fail: it is open to others"},
		{"a file", func(_ *testing.T, dir string) error { return os.WriteFile(dir, nil, 0o600) }, false, "fail: DIR is no directory"},
		{"a full file system", func(t *testing.T, dir string) error {
			return errors.Join(mounted(t, dir, 0, "size=64k"), os.WriteFile(filepath.Join(dir, "f"), make([]byte, 64<<10), 0o600))
		}, false, "fail: DIR is on a file system without space left"},
		{"no inodes", func(t *testing.T, dir string) error {
			return errors.Join(mounted(t, dir, 0, "size=64m,nr_inodes=2"), os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
		}, false, "fail: DIR is on a file system without inodes left"},
		{"read-only", func(t *testing.T, dir string) error { return mounted(t, dir, unix.MS_RDONLY, "size=64m") }, false, "fail: DIR is on a file system that is mounted read-only"},
		{"on tmpfs", func(t *testing.T, dir string) error { return mounted(t, dir, 0, "size=64m") }, false, "warn: DIR is on tmpfs, which a reboot empties"},
	} {
		dir := filepath.Join(t.TempDir(), "state")
		if err := tt.make(t, dir); err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		f := Folder{Check: "dataDir", Path: dir, Boots: tt.what == "on tmpfs", Guarded: func(string) error {
			if tt.open {
				return errOpen
			}
			return nil
		}}
		var got []string
		for _, found := range f.Examine() {
			got = append(got, string(found.Result)+": "+found.Why)
		}
		if want := strings.ReplaceAll(tt.want, "DIR", dir); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%s: %q, want %q", tt.what, got, want)
		}
	}
}

// TestKernelExecutable finds a program that may not be run where it is.
func TestKernelExecutable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts file systems")
	}
	dir := filepath.Join(t.TempDir(), "plugins")
	if err := mounted(t, dir, unix.MS_NOEXEC, "size=64k"); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "pointsman-dataplane-x")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := Executable("plugin x", program); len(got) != 1 || !strings.Contains(got[0].Why, program+" is on a file system that is mounted with noexec") {
		t.Errorf("%+v", got)
	}
	if err := exec.CommandContext(t.Context(), program).Run(); !errors.Is(err, os.ErrPermission) {
		t.Errorf("it runs: %v", err)
	}
	if got := Executable("plugin x", "/proc/self/exe"); len(got) != 0 {
		t.Errorf("of this test: %+v", got)
	}
}

// mounted makes a directory, with a tmpfs of its own until the test ends.
func mounted(t *testing.T, dir string, flags uintptr, options string) error {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return unix.Mount("none", dir, "tmpfs", flags, options)
}
