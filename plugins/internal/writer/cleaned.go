// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A Cleaned is a mark that says: another process cleaned up. A plugin may live on
// without a host, and watches; it must not take that for drift and put everything
// back. So a process that cleans up while another one is the writer leaves the mark, and the
// writer that finds it stands down.
type Cleaned string

// CleanedIn is the mark for mode: a file in dir for each network namespace.
func CleanedIn(dir, mode string) Cleaned {
	namespace, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		namespace = "net"
	}
	return Cleaned(filepath.Join(dir, mode+"-cleaned-"+strings.Trim(strings.ReplaceAll(namespace, ":", "-"), "[]")))
}

// Leave leaves the mark if another process is the writer of mode. A process to which the
// ledger is out of reach removes nothing that a writer wrote.
func (c Cleaned) Leave(dir, mode string) error {
	err := Holder(dir, mode)
	switch {
	case errors.Is(err, ledger.ErrLocked):
		return os.WriteFile(string(c), nil, 0o600)
	case sysctl.OutOfReach(err):
		return nil
	}
	return err
}

// Holder is nil if no process is the writer of mode; else it says which one is, as far as the ledger in
// dir knows.
func Holder(dir, mode string) error {
	shared, err := ledger.Open(dir)
	if err != nil {
		return err
	}
	lock, err := shared.TryLock(mode)
	if err != nil {
		return err
	}
	return lock.Unlock()
}

// Left reports whether the mark is there.
func (c Cleaned) Left() bool {
	_, err := os.Stat(string(c))
	return err == nil
}

// Remove removes the mark: the process that writes from now on knows of it.
func (c Cleaned) Remove() error {
	if err := os.Remove(string(c)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
