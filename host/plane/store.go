// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// A Store keeps the Facts of a host in a file of its state directory. Its methods are not called at the same time.
type Store struct {
	dir    string
	behind bool // the last write failed, so the disk has something older
}

const factsFile = "mode.json"

// Open returns the Store in a directory, and what a host before wrote. What cannot be used is returned, too; the host
// begins without it.
func Open(dir string) (*Store, Facts, error) {
	var f Facts
	path := filepath.Join(dir, factsFile)
	err := readJSON(path, &f)
	if err == nil && !f.named() {
		err = fmt.Errorf("%s has names that no mode can have", path)
	}
	if err != nil {
		return &Store{dir: dir}, Facts{}, fmt.Errorf("read which mode serves: %w", err)
	}
	return &Store{dir: dir}, f, nil
}

// named reports whether the modes may be called so: their names lead to files.
func (f Facts) named() bool {
	modes := append([]string{f.Served, f.Asked, f.File}, f.Left...)
	if f.Refused != nil {
		modes = append(modes, f.Refused.Mode)
	}
	for _, mode := range modes {
		if mode != "" && !supervise.ValidName(mode) {
			return false
		}
	}
	return true
}

// Write has f on the disk, where it is also after a crash of the machine. With an error the next host may find what was
// there before. What is no news is not written again, and neither is that there is nothing to say.
func (s *Store) Write(f Facts) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	there, err := statefile.Read(s.path())
	if err == nil && bytes.Equal(there, text) || errors.Is(err, fs.ErrNotExist) && f.isEmpty() {
		s.behind = false
		return nil
	}
	err = statefile.MakeDir(s.dir)
	if err == nil {
		err = statefile.Write(s.path(), text)
	}
	if s.behind = err != nil; s.behind {
		return fmt.Errorf("write down which mode serves: %w", err)
	}
	return nil
}

// isEmpty reports whether there is nothing that a next host must know.
func (f Facts) isEmpty() bool {
	return f.Served == "" && f.Asked == "" && len(f.Left) == 0 && f.Refused == nil
}

// Forget removes what the next host must know, after everything was cleaned up that it is about.
func Forget(dir string) error {
	if err := statefile.Remove(filepath.Join(dir, factsFile)); err != nil {
		return fmt.Errorf("forget which mode served: %w", err)
	}
	return nil
}

func (s *Store) path() string { return filepath.Join(s.dir, factsFile) }

// readJSON reads a file into v. Without a file it leaves v as it is.
func readJSON(path string, v any) error {
	data, err := statefile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
