// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// A Lock is the writer's lock of one mode in one network namespace. It ends with Unlock, or
// when the last process with its File open has ended.
type Lock struct{ file *os.File }

// TryLock takes the writer's lock of mode. If another process holds it, the error is a
// *sdk.Busy.
func (l *Ledger) TryLock(mode string) (*Lock, error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("lock %s: %w", mode, err)
	}
	name := l.lockFile(mode)
	f, err := statefile.TryLock(name)
	if errors.Is(err, statefile.ErrLocked) {
		return nil, busy(mode, name)
	}
	if err != nil {
		return nil, err
	}
	return &Lock{f}, nil
}

// settingsLock is the name of the lock of the settings. Its file is beside theirs, and has no name of its own.
const settingsLock = "SETTINGS"

// lockFile returns the file of a lock. Plugins of different versions on one node exclude each other by it, so its name must
// not change.
func (l *Ledger) lockFile(name string) string {
	if name == settingsLock {
		return l.file(".lock")
	}
	return l.file("-" + name + ".lock")
}

// Lock waits for the writer's lock of mode until ctx ends.
func (l *Ledger) Lock(ctx context.Context, mode string) (*Lock, error) {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		lock, err := l.TryLock(mode)
		if !errors.As(err, new(*sdk.Busy)) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-poll.C:
		}
	}
}

// lockRecord waits for the lock of a record of this package. The error is never a *sdk.Busy,
// which a host would take for that of the mode's lock.
func (l *Ledger) lockRecord(ctx context.Context, name string) (*Lock, error) {
	lock, err := l.Lock(ctx, name)
	if errors.As(err, new(*sdk.Busy)) {
		err = fmt.Errorf("wait for the lock of %s: %v: %w", name, err, ctx.Err())
	}
	return lock, err
}

// File returns the file to pass to a tool (in exec.Cmd's ExtraFiles), so that the lock lasts
// until the tool has ended, even if this process ends first.
func (k *Lock) File() *os.File { return k.file }

// Unlock releases the lock, effective when the tools that received File have ended.
func (k *Lock) Unlock() error { return k.file.Close() }
