// SPDX-License-Identifier: Apache-2.0

package built

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// TestOnce has two ask for a program at once, and gives both the same file.
func TestOnce(t *testing.T) {
	dir := t.TempDir()
	places := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	var all sync.WaitGroup
	for _, place := range places {
		all.Go(func() {
			if err := Into(place, "", "./test/keeper"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var files []os.FileInfo
	for _, place := range places {
		info, err := os.Stat(filepath.Join(place, "keeper"))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o111 != 0o111 {
			t.Errorf("its mode is %s", info.Mode())
		}
		files = append(files, info)
	}
	if err := os.Link(filepath.Join(places[0], "keeper"), filepath.Join(root(t), "bin", "link")); err != nil {
		t.Skip("needs the module and temporary files on one file system: ", err)
	}
	_ = os.Remove(filepath.Join(root(t), "bin", "link"))
	if !os.SameFile(files[0], files[1]) {
		t.Error("it was built twice")
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPlace replaces a program while it runs.
func TestPlace(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("needs a program to run: ", err)
	}
	yes, err := exec.LookPath("true")
	if err != nil {
		t.Skip("needs a program to run: ", err)
	}
	to := filepath.Join(t.TempDir(), "program")
	if err := Place(sleep, to); err != nil {
		t.Fatal(err)
	}
	running := exec.Command(to, "60")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = running.Process.Kill(); _ = running.Wait() }()
	if err := Place(yes, to); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(to).CombinedOutput(); err != nil {
		t.Errorf("what was put there ends with %v: %s", err, out)
	}
}

func TestSaysWhatDoesNotBuild(t *testing.T) {
	if err := Into(t.TempDir(), "", "./test/nowhere"); err == nil {
		t.Error("there is no such package, and no error")
	}
}
