// SPDX-License-Identifier: Apache-2.0

package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is said now into testdata; read the diff before you keep it")

// TestWrong loads each file of testdata/wrong and compares all that is said about
// it with the text beside it: what a user reads is part of the product.
func TestWrong(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := Load(filepath.ToSlash(file), nil)
			if err == nil {
				t.Fatal("is taken")
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", strings.ReplaceAll(err.Error(), "testdata/wrong/", "")+"\n")
		})
	}
}

// golden compares got with what the file says, or with -update writes it there.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}
