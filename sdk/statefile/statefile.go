// SPDX-License-Identifier: Apache-2.0

// Package statefile reads and replaces the small files in which a process stores state for its
// successors.
//
// The file at such a path may be anything: a pipe, a device, a symbolic link, an endless file.
// Read opens only regular files, never blocks, and reads at most Limit bytes. Write replaces a
// file atomically: after a crash it has the old or the new content. Start reading at Read and Write.
package statefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Limit is the maximum size of a state file.
const Limit = 1 << 20

// ErrLocked means that another process, or another part of this one, holds the lock.
var ErrLocked = errors.New("it is locked")

// ErrUnusable means that the file at the path is not a state file.
var ErrUnusable = errors.New("it is not used; remove it")

// Read returns the content of the file at path. If there is no file, the error is
// fs.ErrNotExist.
func Read(path string) ([]byte, error) {
	info, err := os.Lstat(path) // check before opening, because opening a device may have effects
	if err != nil {
		return nil, err
	}
	if err := checkRegular(path, info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|careful, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil {
		err = checkRegular(path, info)
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, Limit+1))
	if err == nil && len(data) > Limit {
		err = fmt.Errorf("%s is larger than %d KiB: %w", path, Limit>>10, ErrUnusable)
	}
	return data, err
}

func checkRegular(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file (%s): %w", path, info.Mode(), ErrUnusable)
	}
	return nil
}

// writing serializes Write, because all calls for a path use the same temporary file.
var writing sync.Mutex

// Write writes data to the file at path, readable by this user only. If it returns nil, the
// file survives a crash of the machine. After an error the file has the old or the new content.
// Write overwrites a temporary file beside path that a killed process left.
func Write(path string, data []byte) error {
	writing.Lock()
	defer writing.Unlock()
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_WRONLY|careful, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return syncDir(filepath.Dir(path))
}

// Remove removes the file durably. It succeeds if there is no file.
func Remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
