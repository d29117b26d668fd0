// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestWriteAndRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mode.json")
	if _, err := Read(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, want := range []string{"one", "another"} {
		if err := Write(file, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(file); string(got) != want || err != nil {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v; want it private", info.Mode(), err)
	}
	for range 2 {
		if err := Remove(file); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) > 0 {
		t.Errorf("%v were left", left)
	}
}

// TestManyWriteAtOnce: the file is always one of those that were written.
func TestManyWriteAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mode.json")
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for range 20 {
				if err := Write(file, []byte(strings.Repeat(string(rune('a'+i)), 1000))); err != nil {
					t.Error(err)
				}
				if got, err := Read(file); err != nil || len(got) != 1000 || strings.Trim(string(got), string(got[:1])) != "" {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			}
		})
	}
	writers.Wait()
}

// TestReplace: what a killed process left of a file is not in the next one, and content
// that cannot be made leaves the old one.
func TestReplace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(file+".new", []byte("half of a longer one"), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(text string, err error) error {
		return Replace(file, 0o700, func(w io.Writer) error {
			_, wrote := io.WriteString(w, text)
			return errors.Join(wrote, err)
		})
	}
	if err := write("whole", nil); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the source is gone")
	if err := write("ha", broken); !errors.Is(err, broken) {
		t.Errorf("content that cannot be made: %v", err)
	}
	if got, err := os.ReadFile(file); string(got) != "whole" || err != nil {
		t.Errorf("it has %q, %v", got, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o700 && filepath.Separator == '/' {
		t.Errorf("%v, %v; want it executable, for this user alone", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Errorf("%v were left", left)
	}
}

func TestTooLarge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mode.json")
	if err := os.WriteFile(file, make([]byte, Limit+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); !errors.Is(err, ErrUnusable) {
		t.Errorf("too large: %v", err)
	}
}
