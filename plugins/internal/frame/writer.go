// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"

	"github.com/pointsman/pointsman/plugins/internal/writer"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// writes reports whether this process may write.
func (d *Dataplane[P]) writes() bool {
	return d.lock != nil || d.open.Unlocked && d.role != sdk.Yielded
}

// tryLock becomes the writer, if no other process is and this one has not yielded. One that
// was told to stand by, while another process was the writer, begins in the role that the
// kernel shows: what serves there may be all that does.
func (d *Dataplane[P]) tryLock() error {
	if d.lock != nil || d.role == sdk.Yielded || d.open.Unlocked {
		return nil
	}
	lock, err := d.claim.Lock(d.ledger)
	if lock == nil {
		return err
	}
	d.lock = lock
	if d.role == sdk.Standby {
		d.role = 0
	}
	d.hold()
	return d.cleaned().Remove()
}

// hold hands the lock, or none, to the families. What they knew is of before.
func (d *Dataplane[P]) hold() {
	lock := d.lock
	if d.open.Unlocked && d.writes() {
		lock = new(ledger.Lock)
	}
	for _, f := range d.families {
		f.known = false
		f.Hold(lock)
	}
}

// release gives up the right to write, and with it the task to repair.
func (d *Dataplane[P]) release() error {
	if !d.open.Unlocked {
		d.claim.Forget()
	}
	for _, f := range d.families {
		f.known = false
		f.Hold(nil)
	}
	return d.unlock()
}

// unlock lets go of the lock, if this process has it.
func (d *Dataplane[P]) unlock() error {
	lock := d.lock
	d.lock = nil
	if lock == nil {
		return nil
	}
	return lock.Unlock()
}

// cleaned is the mark by which another process says that it has cleaned up.
func (d *Dataplane[P]) cleaned() writer.Cleaned { return writer.CleanedIn(d.dir, d.name()) }

// standDown ends being the writer, because another process has cleaned up. A host that
// wants this process to serve says so by a role.
func (d *Dataplane[P]) standDown() {
	d.log.Warn("another process cleaned up: standing down")
	d.role = sdk.Yielded
	if err := d.release(); err != nil {
		d.log.Warn("cannot give up the right to write", "err", err)
	}
}

// writePlanned writes what was planned while another process was the writer.
func (d *Dataplane[P]) writePlanned(ctx context.Context) error {
	result, err := d.reconcile(ctx, sdk.Changes{})
	if err == nil {
		d.state.Confirm(result.Failed...)
		d.claim.Wrote(result.Failed)
	}
	return err
}
