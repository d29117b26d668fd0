// SPDX-License-Identifier: Apache-2.0

// Package share divides tests between processes that run the same test program side by side, as the guests of test/uml
// do. Since the duration of a test is not known before, no process gets its share at the start: each takes the next
// test that no other has. It must not be used for tests that depend on each other. Start reading at Take.
package share

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
)

// Variable names the folder that the processes share. It must be empty when the first one starts. Without it a process
// runs every test.
const Variable = "POINTSMAN_SHARE"

var (
	mu    sync.Mutex // guards what is below
	taken = map[string]bool{}
)

// Take reports whether this process should run what has this name: the first that asks. The same process may ask again.
// Take panics if it cannot write to the folder, since otherwise no test would run, and none would fail.
func Take(name string) bool {
	dir := os.Getenv(Variable)
	if dir == "" {
		return true
	}
	mu.Lock()
	defer mu.Unlock()
	key := filepath.Join(dir, url.PathEscape(name))
	if taken[key] {
		return true
	}
	err := os.Mkdir(key, 0o755) // only one process creates it
	if err != nil && !errors.Is(err, fs.ErrExist) {
		panic(fmt.Sprintf("%s names no folder in which tests can be taken: %v", Variable, err))
	}
	taken[key] = err == nil
	return taken[key]
}
