// SPDX-License-Identifier: Apache-2.0

//go:build unix

package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

func executable(path string, info os.FileInfo) error {
	if info.Mode()&0o111 == 0 {
		return fmt.Errorf("it is not executable; try: chmod +x %s: %w", path, os.ErrPermission)
	}
	return nil
}

// unstarted returns why the kernel could not run the binary.
func unstarted(err error) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("it is not a program for this machine (%s), and not a script that names its interpreter: %w", runtime.GOARCH, err)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("the interpreter or loader that it names is missing: %w", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this user may not run it, or its file system is mounted noexec: %w", err)
	}
	return err
}

// guardedWell returns an error if a user can change the binary who cannot change the host. Such
// a user could gain the plugin's privileges.
func guardedWell(path string, info os.FileInfo) error {
	owners := []uint32{0, uint32(os.Geteuid())}
	var host []string // directories of the host's binary: a user who can change one of them can change the host too
	if self, err := os.Executable(); err == nil {
		host = leadingTo(self)
		if info, err := os.Stat(self); err == nil {
			owners = append(owners, info.Sys().(*syscall.Stat_t).Uid)
		}
	}
	if err := guarded("it", path, info, owners); err != nil {
		return err
	}
	dirs := leadingTo(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		dirs = append(dirs, leadingTo(real)...)
	}
	for _, dir := range dirs {
		if slices.Contains(host, dir) {
			continue
		}
		info, err := os.Stat(dir)
		if err == nil {
			err = guarded("directory "+dir, dir, info, owners)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func guarded(what, path string, info os.FileInfo, owners []uint32) error {
	s, mode := info.Sys().(*syscall.Stat_t), info.Mode()
	sticky := info.IsDir() && mode&os.ModeSticky != 0 // in a sticky directory only the owner of an entry can replace it
	switch {
	case !slices.Contains(owners, s.Uid):
		return fmt.Errorf("%s belongs to user %d, who could replace the plugin; try: chown root %s", what, s.Uid, path)
	case mode&0o002 != 0 && !sticky:
		return fmt.Errorf("%s is writable by everyone (%s); try: chmod o-w %s", what, mode, path)
	case mode&0o020 != 0 && !sticky && s.Gid != 0 && s.Gid != uint32(os.Getegid()):
		return fmt.Errorf("%s is writable by group %d (%s); try: chmod g-w %s", what, s.Gid, mode, path)
	}
	return nil
}

// leadingTo returns all parent directories of an absolute path except the root.
func leadingTo(path string) []string {
	var dirs []string
	for dir := filepath.Dir(path); dir != string(filepath.Separator) && strings.ContainsRune(dir, filepath.Separator); dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
	}
	return dirs
}
