// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ofState are those of what the host writes down.
var ofState = []fault{
	{name: "state-lost", do: func(n *node) { n.stateless(lose) }},
	{name: "state-corrupt", do: func(n *node) { n.stateless(garble) }},
	{name: "state-empty", do: func(n *node) { n.stateless(empty) }},
	{name: "state-fifo", do: func(n *node) { n.stateless(fifo) }},
	{name: "state-link", do: func(n *node) { n.stateless(link) }},
	{name: "state-folder", do: stateFolder},
	{name: "state-all-lost", do: stateAllLost},
}

// What becomes of a file.
func lose(path string) error { return os.Remove(path) }
func garble(path string) error {
	return os.WriteFile(path, []byte(`{"serving": "ipvs", "PID": 1, `), 0o600)
}
func empty(path string) error  { return os.WriteFile(path, nil, 0o600) }
func fifo(path string) error   { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }
func link(path string) error   { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) }
func folder(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }

// stateless has that happen to one of the files of the state, or to all, while no host
// runs; the plugin serves on.
func (n *node) stateless(what func(path string) error) {
	n.Helper()
	sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[n.IntN(2)]
	n.again(sig, func() {
		var files []string
		_ = filepath.WalkDir(n.path("state"), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".json") {
				files = append(files, path)
			}
			return nil
		})
		if n.IntN(2) == 0 {
			files = files[n.IntN(len(files)):][:1]
		}
		for _, path := range files {
			n.step("  %s", strings.TrimPrefix(path, n.dir))
			if strings.Contains(path, "userspace/process") { // the next host ends a process that it cannot go on with
				n.relayGone()
			}
			if err := what(path); err != nil {
				n.Fatal(err)
			}
		}
	})
}

// stateAllLost has the whole folder gone while no host runs, and its plugin still serves.
func stateAllLost(n *node) {
	n.again(syscall.SIGKILL, func() {
		if len(n.plugins("userspace")) > 0 {
			n.relayGone()
		}
		if err := os.RemoveAll(n.path("state")); err != nil {
			n.Fatal(err)
		}
	})
}

// stateFolder has folders where files belong, which nothing can take the place of. The
// host serves, and warns if it has something to write there.
func stateFolder(n *node) {
	var there []string
	n.stateless(func(path string) error { there = append(there, path); return folder(path) })
	n.until("the host serves", long, n.served)
	for _, path := range there {
		_ = os.Remove(path)
	}
}
