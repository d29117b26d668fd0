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

// A Store keeps the Facts of a host in a file in its state directory. It is not safe for
// concurrent use.
type Store struct {
	dir    string
	behind bool // the last write failed, so the file has older facts
}

const factsFile = "mode.json"

// Open returns the Store of a directory, and the facts that the previous host wrote. The Store
// is usable even if Open returns an error because the file is not; then the host starts with no
// facts.
func Open(dir string) (*Store, Facts, error) {
	var f Facts
	path := filepath.Join(dir, factsFile)
	err := readJSON(path, &f)
	if err == nil && !f.hasValidNames() {
		err = fmt.Errorf("%s has names that no mode can have", path)
	}
	if err != nil {
		return &Store{dir: dir}, Facts{}, fmt.Errorf("read which mode serves: %w", err)
	}
	return &Store{dir: dir}, f, nil
}

// hasValidNames reports whether all modes have valid names. It matters because the names become parts
// of paths.
func (f Facts) hasValidNames() bool {
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

// Write writes f so that it survives a crash of the machine. After an error the next host may
// find the previous facts. Write does nothing if the file has the same content, or if f is
// empty and there is no file.
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

// isEmpty reports whether f has nothing that the next host must know.
func (f Facts) isEmpty() bool {
	return f.Served == "" && f.Asked == "" && len(f.Left) == 0 && f.Refused == nil
}

// Forget removes the facts from dir, after all modes were cleaned up.
func Forget(dir string) error {
	if err := statefile.Remove(filepath.Join(dir, factsFile)); err != nil {
		return fmt.Errorf("forget which mode served: %w", err)
	}
	return nil
}

func (s *Store) path() string { return filepath.Join(s.dir, factsFile) }

// readJSON reads a file into v. If there is no file, v is not changed.
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
