// SPDX-License-Identifier: Apache-2.0

//go:build unix

package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Guarded returns an error if other users can change the content of dir. Dir must belong to
// this user or root, and no other user may write to dir or to its parents. A parent with the
// sticky bit, such as /tmp, is accepted, because only the owner of dir can rename it there.
func Guarded(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return err
	}
	for at := real; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		s := info.Sys().(*syscall.Stat_t)
		if at == real && s.Uid != 0 && s.Uid != uint32(os.Geteuid()) {
			return fmt.Errorf("directory %s belongs to user %d, who could change what is in it; try: chown %d %s, or use another", real, s.Uid, os.Geteuid(), real)
		}
		if at == real || info.Mode()&fs.ModeSticky == 0 {
			if err := checkClosed(at, info.Mode(), s); err != nil {
				return err
			}
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// MakeDir creates dir and its missing parents, accessible to this user only.
func MakeDir(dir string) error { return os.MkdirAll(dir, 0o700) }

// checkClosed returns an error if others may write to dir: everyone, or a group that is neither
// root's nor this user's own.
func checkClosed(dir string, mode fs.FileMode, s *syscall.Stat_t) error {
	switch {
	case isVolume(dir, s):
		return nil
	case mode&0o002 != 0:
		return fmt.Errorf("directory %s may be written to by everyone (%s); try: chmod o-w %s, or use another", dir, mode, dir)
	case mode&0o020 != 0 && s.Gid != 0 && s.Gid != uint32(os.Getegid()):
		return fmt.Errorf("directory %s may be written to by group %d (%s); try: chmod g-w %s, or use another", dir, s.Gid, mode, dir)
	}
	return nil
}

// isVolume reports whether dir is a file system that root mounted for an ordinary user: in
// Kubernetes an emptyDir is writable by everyone, and no other user is in the container.
func isVolume(dir string, s *syscall.Stat_t) bool {
	if os.Geteuid() == 0 || s.Uid != 0 {
		return false
	}
	var parent syscall.Stat_t
	return syscall.Stat(filepath.Dir(dir), &parent) == nil && parent.Dev != s.Dev
}

// careful makes open fail for symbolic links, and not block on pipes and terminals.
const careful = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY

// TryLock locks the file at path and creates it if necessary. The lock ends when the file is
// closed or the process ends. If another process holds the lock, the error is ErrLocked.
func TryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|careful, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// syncDir makes changes of a directory's entries durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
