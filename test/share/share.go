// SPDX-License-Identifier: Apache-2.0

// Package share divides tests between processes that run the same test program side by side,
// as the guests of test/uml do. What each test takes cannot be known before, so none is given
// its share at the start: each takes the next test that no other has.
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

// Variable names the folder that the processes have in common. It is empty when the first one
// starts. Without it a process has every test.
const Variable = "POINTSMAN_SHARE"

var (
	mu    sync.Mutex // guards what is below
	taken = map[string]bool{}
)

// Take reports whether this process is the one that runs what has this name: the first that
// asks. The same process may ask again. A folder that cannot be written to is a panic, since no
// test would run otherwise, and none would fail.
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
	err := os.Mkdir(key, 0o755) // of processes that ask at once, one makes it
	if err != nil && !errors.Is(err, fs.ErrExist) {
		panic(fmt.Sprintf("%s names no folder in which tests can be taken: %v", Variable, err))
	}
	taken[key] = err == nil
	return taken[key]
}
