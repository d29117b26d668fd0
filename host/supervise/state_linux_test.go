// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestOddHandles: whatever lies where the way to a process is written down, the plugin is
// started, and waits for nothing.
func TestOddHandles(t *testing.T) {
	for name, lay := range map[string]func(string) error{
		"pipe":      func(f string) error { return syscall.Mkfifo(f, 0o600) },
		"endless":   func(f string) error { return os.Symlink("/dev/zero", f) },
		"huge":      func(f string) error { return errors.Join(os.WriteFile(f, nil, 0o600), os.Truncate(f, 1<<40)) },
		"no JSON":   func(f string) error { return os.WriteFile(f, []byte("{"), 0o600) },
		"directory": func(f string) error { return os.Mkdir(f, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newHarness(t, "serve")
			file := handleFile(y.plugin.StateDir, "")
			if err := errors.Join(os.MkdirAll(y.plugin.StateDir, 0o700), lay(file)); err != nil {
				t.Fatal(err)
			}
			y.run()
			y.untilServing()
			y.until("written down", func(Status) bool { _, err := readHandle(y.plugin.StateDir, ""); return err == nil })
			y.mu.Lock()
			defer y.mu.Unlock()
			if said := strings.Join(y.transitions, "\n"); !strings.Contains(said, file) {
				t.Errorf("it is not said:\n%s", said)
			}
		})
	}
}
