// SPDX-License-Identifier: Apache-2.0

//go:build unix

package launch

import (
	"debug/elf"
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

// unstarted returns why the kernel would not run the binary.
func unstarted(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("it is not a program for this machine (%s): %s: %w", runtime.GOARCH, kindOf(path), err)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("the interpreter or loader that it names is missing: %w", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this user may not run it, or its file system is mounted noexec: %w", err)
	}
	return err
}

// kindOf says what the file is, as far as its first bytes tell.
func kindOf(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return "it is no ELF binary, and no script that names its interpreter"
	}
	defer f.Close()
	return "it is built for " + strings.ToLower(strings.TrimPrefix(f.Machine.String(), "EM_"))
}

// guardedWell reports which users may change the binary though they could not change the
// host: for such a one it would be a way to the plugin's privileges.
func guardedWell(path string, info os.FileInfo) error {
	host := hostBinary()
	if err := host.guards(path, info); err != nil {
		return err
	}
	dirs := leadingTo(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		dirs = append(dirs, leadingTo(real)...)
	}
	for _, dir := range dirs {
		if slices.Contains(host.dirs, dir) {
			continue // a user that may change this one may change the host too
		}
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if err := host.guards(dir, info); err != nil {
			return err
		}
	}
	return nil
}

// A guard is the users that may change what a host executes.
type guard struct {
	owners []uint32 // of files and directories
	group  uint32   // that may write to them
	dirs   []string // that lead to the host's own binary
}

// hostBinary returns the guard that the host's own binary has.
func hostBinary() guard {
	g := guard{owners: []uint32{0, uint32(os.Geteuid())}, group: uint32(os.Getegid())}
	path, err := os.Executable()
	if err != nil {
		return g
	}
	g.dirs = leadingTo(path)
	if info, err := os.Stat(path); err == nil {
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			g.owners = append(g.owners, s.Uid)
		}
	}
	return g
}

func (g guard) guards(path string, info os.FileInfo) error {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("who owns %s cannot be told", path)
	}
	what := "it"
	if info.IsDir() {
		what = "directory " + path
	}
	sticky := info.IsDir() && info.Mode()&os.ModeSticky != 0 // there only an entry's owner changes it
	switch {
	case !slices.Contains(g.owners, s.Uid):
		return fmt.Errorf("%s belongs to user %d, who could put another plugin there; try: chown root %s", what, s.Uid, path)
	case info.Mode()&0o002 != 0 && !sticky:
		return fmt.Errorf("%s may be written to by everyone (%s); try: chmod o-w %s", what, info.Mode(), path)
	case info.Mode()&0o020 != 0 && !sticky && s.Gid != 0 && s.Gid != g.group:
		return fmt.Errorf("%s may be written to by group %d (%s); try: chmod g-w %s", what, s.Gid, info.Mode(), path)
	}
	return nil
}

// leadingTo lists the directories that an absolute path goes through, but the root.
func leadingTo(path string) []string {
	var dirs []string
	for dir := filepath.Dir(path); dir != string(filepath.Separator) && strings.ContainsRune(dir, filepath.Separator); dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
	}
	return dirs
}
