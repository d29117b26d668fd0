// SPDX-License-Identifier: Apache-2.0

package bounded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/host/bounded/boundedtest"
)

// within fails the test, with every goroutine's stack, when f takes too long.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("no return within %s", limit)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(file("plain"), []byte("text"), 0o600))
	must(os.WriteFile(file("large"), make([]byte, 1<<20+1), 0o600))
	must(os.WriteFile(file("sparse"), nil, 0o600))
	must(os.Truncate(file("sparse"), 1<<40))
	must(unix.Mkfifo(file("pipe"), 0o600))
	must(os.Symlink("/proc/kmsg", file("kmsg")))
	must(os.Symlink("/proc/self/cmdline", file("proc")))
	must(os.Symlink("/dev/zero", file("zero")))
	must(os.Symlink("loop", file("loop")))
	silent, err := os.OpenFile(file("pipe"), os.O_RDWR, 0) // a writer that sends nothing
	must(err)
	defer silent.Close()

	for name, want := range map[string]string{
		"plain":  "",
		"large":  "it is larger than 1 MiB",
		"sparse": "it is larger than 1 MiB",
		"pipe":   "it is no ordinary file but a pipe",
		"zero":   "it is no ordinary file but a device",
		".":      "it is no ordinary file but a folder",
		"proc":   "it lies in procfs",
		"kmsg":   "it lies in procfs",
		"loop":   "too many levels of symbolic links",
		"none":   "no such file or directory",
	} {
		if name == "kmsg" && os.Getuid() != 0 {
			continue // may not be opened
		}
		within(t, 30*time.Second, func() {
			data, err := ReadFile(file(name), 1<<20)
			switch {
			case want == "" && (err != nil || string(data) != "text"):
				t.Errorf("%s: %q, %v", name, data, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		})
	}
}

func TestReadFileWithin(t *testing.T) {
	dir, release := boundedtest.Hung(t)
	within(t, 30*time.Second, func() {
		_, err := ReadFileWithin(filepath.Join(dir, "file"), 1<<20, 50*time.Millisecond)
		if err == nil || err.Error() != "the file system did not answer within 50ms" {
			t.Errorf("%v", err)
		}
	})
	release()
	within(t, 30*time.Second, func() {
		if _, err := ReadFileWithin(filepath.Join(dir, "file"), 1<<20, 20*time.Second); err == nil {
			t.Error("read what is not there")
		}
	})
}

// However often it is asked for, one call of a key is under way, and its answer is not
// lost.
func TestCallerKeepsOneCallForEachKey(t *testing.T) {
	var c Caller[string, int]
	gate, calls := make(chan struct{}), 0
	slow := func() int { calls++; <-gate; return calls }
	for range 5 {
		if _, ok := c.Do("slow", time.Millisecond, slow); ok {
			t.Fatal("an answer before there was one")
		}
		if n, ok := c.Do("quick", time.Minute, func() int { return 7 }); !ok || n != 7 {
			t.Fatalf("beside a slow call: %d, %v", n, ok)
		}
	}
	if c.Waiting() != 1 || c.Since("slow").IsZero() || !c.Since("quick").IsZero() {
		t.Errorf("%d are waiting, slow since %s", c.Waiting(), c.Since("slow"))
	}
	close(gate)
	if n, ok := c.Do("slow", time.Minute, slow); !ok || n != 1 || c.Waiting() != 0 {
		t.Errorf("the answer is %d, %v, and %d are waiting", n, ok, c.Waiting())
	}
}
