// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLastGood keeps the last binary that worked, and knows it by its hash.
func TestLastGood(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(t.TempDir(), "plugin")
	install := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() string {
		good, _ := lastGood(dir, path)
		text, _ := os.ReadFile(good)
		return string(text)
	}
	install("one")
	if err := keepGood(dir, path); err != nil {
		t.Fatal(err)
	}
	if got := kept(); got != "" {
		t.Errorf("falls back from a binary to itself: %q", got)
	}
	install("two")
	if got := kept(); got != "one" {
		t.Errorf("falls back to %q, want the first", got)
	}
	if err := keepGood(dir, path); err != nil {
		t.Fatal(err)
	}
	install("three")
	if got := kept(); got != "two" {
		t.Errorf("falls back to %q, want the second", got)
	}
	if all, _ := filepath.Glob(filepath.Join(dir, "good-*")); len(all) != 1 {
		t.Errorf("keeps %q", all)
	}
	good, sum := lastGood(dir, path)
	if p := (Plugin{Path: path, StateDir: dir}).good(); p.Path != good || p.SHA256 != sum || sum == "" {
		t.Errorf("what is run is %s, held to the hash %q, want %s and %q", p.Path, p.SHA256, good, sum)
	}
	if err := os.WriteFile(good, []byte("tampered with"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := kept(); got != "" {
		t.Errorf("falls back to what was tampered with: %q", got)
	}
}
