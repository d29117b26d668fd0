// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A plugin may live on without a host, and watches. When another process cleans up,
// it must not take that for drift and put everything back: so who cleans up while
// somebody else is the writer leaves a mark, and the writer that finds it stands
// down.

// cleanedMark is the mark's file: one for each network namespace.
func (p *plugin) cleanedMark() string {
	namespace, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		namespace = "net"
	}
	return filepath.Join(p.dir, mode+"-cleaned-"+strings.Trim(strings.ReplaceAll(namespace, ":", "-"), "[]"))
}

// warnWriter leaves the mark if another process is the writer.
func (p *plugin) warnWriter() error {
	if p.lock != nil {
		return nil
	}
	book, err := ledger.Open(p.dir)
	if err != nil {
		return err
	}
	lock, err := book.TryLock(mode)
	if errors.Is(err, ledger.ErrLocked) {
		return os.WriteFile(p.cleanedMark(), nil, 0o600)
	}
	if err != nil {
		return err
	}
	return lock.Unlock()
}

// cleaned reports whether another process cleaned up.
func (p *plugin) cleaned() bool {
	_, err := os.Stat(p.cleanedMark())
	return err == nil
}

// unmark takes the mark away: who writes from now on knows of it.
func (p *plugin) unmark() error {
	if err := os.Remove(p.cleanedMark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// standDown ends being the writer, from within the watch, which ends by itself
// then. A host that wants this process to serve says so by a role.
func (p *plugin) standDown() {
	p.log.Warn("another process cleaned up: standing down")
	lock, w := p.lock, p.watch
	p.lock, p.watch, p.role = nil, nil, sdk.Yielded
	p.hold()
	w.quit()
	if err := lock.Unlock(); err != nil {
		p.log.Warn("cannot give up the right to write", "err", err)
	}
}
