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

// explainStart adds to err, from the start of the binary, what is wrong with the file.
func explainStart(err error) error {
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

// checkWriters returns an error if a user who cannot change the host's binary can change the plugin's. Such a user
// could gain the plugin's privileges.
func checkWriters(path string, info os.FileInfo) error {
	owners := []uint32{0, uint32(os.Geteuid())}
	var host []string // directories of the host's binary: a user who can change one of them can change the host too
	if self, err := os.Executable(); err == nil {
		host = parentDirs(self)
		if info, err := os.Stat(self); err == nil {
			owners = append(owners, info.Sys().(*syscall.Stat_t).Uid)
		}
	}
	if err := checkWriter("it", path, info, owners); err != nil {
		return err
	}
	dirs := parentDirs(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		dirs = append(dirs, parentDirs(real)...)
	}
	for _, dir := range dirs {
		if slices.Contains(host, dir) {
			continue
		}
		info, err := os.Stat(dir)
		if err == nil {
			err = checkWriter("directory "+dir, dir, info, owners)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkWriter returns an error if a user other than the owners can write to a file or directory.
func checkWriter(what, path string, info os.FileInfo, owners []uint32) error {
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

// parentDirs returns all parent directories of an absolute path except the root.
func parentDirs(path string) []string {
	var dirs []string
	for dir := filepath.Dir(path); dir != string(filepath.Separator) && strings.ContainsRune(dir, filepath.Separator); dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
	}
	return dirs
}
