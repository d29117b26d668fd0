// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// Saved is what the next host must know: what the kernel has decides with which dataplane it
// begins, not what the config file says by then.
type Saved struct {
	Serving string `json:"serving"`         // the mode that serves
	Slot    string `json:"slot,omitempty"`  // of its process
	Asked   string `json:"asked,omitempty"` // by pointsman mode swap; empty: no other than the file's mode was asked for
	File    string `json:"file,omitempty"`  // the mode in the file when that was asked for

	// Left are the modes that do not serve and may have rules in the kernel, because a
	// change ended without cleaning up after them.
	Left []string `json:"left,omitempty"`

	// Swap is the change of mode that is under way; nil: none is.
	Swap *swap.Saved `json:"swap,omitempty"`
}

// named reports whether the modes and the process may be called so: their names lead to
// files.
func (s Saved) named() bool {
	for _, mode := range append([]string{s.Serving, s.Asked, s.File}, s.Left...) {
		if mode != "" && !supervise.ValidName(mode) {
			return false
		}
	}
	return supervise.ValidSlot(s.Slot)
}

func (s Saved) wanted(mode string) string {
	if s.Asked != "" && s.File == mode {
		return s.Asked
	}
	return mode
}

// under returns what is left of it when the file says mode: what was asked for before the file
// changed does not hold again when the file changes back.
func (s Saved) under(mode string) Saved {
	if s.File != mode {
		s.Asked, s.File = "", ""
	}
	return s
}

// Begins returns the process to begin with: the one that the change under way keeps, else the
// one that served before as long as its mode is available, else one of the mode that is
// wanted.
func (i Intent) Begins(available func(mode string) bool) swap.Party {
	if m := i.UnderWay(); m.Stage != swap.Idle {
		keeps, _ := m.Parties()
		return keeps
	}
	if i.Serving != "" && available(i.Serving) {
		return swap.Party{Mode: i.Serving, Slot: i.Slot}
	}
	return swap.Party{Mode: i.Wanted()}
}

// UnderWay returns the change of mode that was under way.
func (s Saved) UnderWay() swap.Machine {
	m, err := s.Swap.Machine()
	if err != nil {
		return swap.Machine{} // only what makes sense is read
	}
	return m
}

// file is in the state directory.
const file = "mode.json"

// A Store keeps an Intent, and on the disk what of it the next host must know. It is safe
// for concurrent use.
type Store struct {
	dir string

	writing sync.Mutex // held during a write, so that the last Intent is written last

	mu     sync.Mutex // guards what follows
	intent Intent
	behind bool // the last write failed, so the disk has something older
}

// Open begins with what a host before wrote, while the config file says mode. What cannot be
// used is returned, too; the host begins without it.
func Open(dir, mode string) (*Store, []error) {
	saved, errs := read(dir)
	return &Store{dir: dir, intent: Begin(saved, mode)}, errs
}

// Intent returns the present one.
func (s *Store) Intent() Intent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.intent
}

// Change changes the intent, and writes it down if it is news to the next host. With an
// error the next host may find what was there before; the next Change, and Repair, try it
// again.
func (s *Store) Change(change func(Intent) Intent) error {
	s.mu.Lock()
	before := s.intent.Saved
	s.intent = change(s.intent)
	after, behind := s.intent.Saved, s.behind
	s.mu.Unlock()
	if !behind && bytes.Equal(before.text(), after.text()) {
		return nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.write(s.Intent().text())
}

// Repair writes the intent down if that is not what is on the disk, unless there is nothing
// to say.
func (s *Store) Repair() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	text := s.Intent().text()
	there, err := statefile.Read(s.path())
	if err == nil && bytes.Equal(there, text) || bytes.Equal(text, Saved{}.text()) {
		return nil
	}
	return s.write(text)
}

// write replaces what is on the disk. When it returns nil, text is there also after a crash
// of the machine. The caller holds writing.
func (s *Store) write(text []byte) error {
	err := statefile.MakeDir(s.dir)
	if err == nil {
		err = statefile.Write(s.path(), text)
	}
	s.mu.Lock()
	s.behind = err != nil
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("write down which mode serves and where the swap stands: %w", err)
	}
	return nil
}

// Forget removes what the next host must know, after everything was cleaned up that it is about.
func Forget(dir string) error {
	if err := statefile.Remove(filepath.Join(dir, file)); err != nil {
		return fmt.Errorf("forget which mode served: %w", err)
	}
	return nil
}

func (s *Store) path() string { return filepath.Join(s.dir, file) }

func (s Saved) text() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // it has nothing but texts, numbers and times
	}
	return text
}

// read returns what is in the file, and why what is there cannot be used.
func read(dir string) (s Saved, errs []error) {
	path := filepath.Join(dir, file)
	if err := readJSON(path, &s); err != nil {
		s, errs = Saved{}, append(errs, fmt.Errorf("read which mode serves: %w", err))
	}
	if !s.named() {
		s, errs = Saved{}, append(errs, fmt.Errorf("read which mode serves: %s has names that no mode can have", path))
	}
	if _, err := s.Swap.Machine(); err != nil {
		s.Swap, errs = nil, append(errs, fmt.Errorf("read the swap that was under way: %s: %w", path, err))
	}
	return s, errs
}

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
