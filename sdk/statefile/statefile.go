// SPDX-License-Identifier: Apache-2.0

// Package statefile reads and replaces the small files in which a process writes down
// what its successors need.
//
// What lies at such a path may be anything: a pipe, a device, a symbolic link, something
// endless. Read opens regular files only, waits for nothing, and reads no more than
// Limit. Write replaces a file as a whole: after a crash it has the old content or the
// new one.
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

// Limit is how large a state file may be.
const Limit = 1 << 20

// ErrLocked says that another process, or another part of this one, has the lock.
var ErrLocked = errors.New("it is locked")

// ErrUnusable says that what is there is no state file.
var ErrUnusable = errors.New("it is not used; remove it")

// Read returns the content of the file at path. Without a file the error is fs.ErrNotExist.
func Read(path string) ([]byte, error) {
	before, err := os.Lstat(path) // to open a device may do something
	if err != nil {
		return nil, err
	}
	if err := regular(path, before); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|careful, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := regular(path, opened); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, Limit+1))
	if err == nil && len(data) > Limit {
		err = tooLarge(path)
	}
	return data, err
}

func regular(path string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file (%s): %w", path, info.Mode(), ErrUnusable)
	case info.Size() > Limit:
		return tooLarge(path)
	}
	return nil
}

func tooLarge(path string) error {
	return fmt.Errorf("%s is larger than %d KiB: %w", path, Limit>>10, ErrUnusable)
}

// writing is held by the one Replace that runs: two would write to the same temporary file.
var writing sync.Mutex

// Write puts data in a file at path, which only this user may read. When it returns nil,
// the file is there also after a crash of the machine. With an error nothing is promised
// but that it has the old content or the new one.
func Write(path string, data []byte) error {
	return Replace(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Replace is Write for content that does not fit into memory, and for another mode. A
// temporary file beside path, which a process that was killed leaves, is begun anew.
func Replace(path string, mode fs.FileMode, write func(io.Writer) error) error {
	writing.Lock()
	defer writing.Unlock()
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_WRONLY|careful, mode)
	if err != nil {
		return err
	}
	err = write(f)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return settle(filepath.Dir(path))
}

// Remove removes the file, also after a crash of the machine. That there is none is no
// error.
func Remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return settle(filepath.Dir(path))
}
