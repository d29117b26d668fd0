// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
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
	if err := os.WriteFile(file+".new", []byte("half of a longer one"), 0o600); err != nil { // as a killed process leaves
		t.Fatal(err)
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
		t.Errorf("%v, %v; want mode 0600", info.Mode(), err)
	}
	for range 2 {
		if err := Remove(file); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestManyWriteAtOnce: concurrent writers leave the content of one of them.
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

func TestTooLarge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mode.json")
	if err := os.WriteFile(file, make([]byte, Limit+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); !errors.Is(err, ErrUnusable) {
		t.Errorf("too large: %v", err)
	}
}
