// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// This file decides in which role this process writes, and whether it writes at all.

// SetRole sets the role, and writes what it needs.
func (d *Dataplane[P]) SetRole(ctx context.Context, role sdk.Role) error {
	if !role.Known() {
		return &sdk.Refusal{Field: "role", Why: "unknown role " + role.String()}
	}
	if err := d.semaphore.call(ctx); err != nil {
		return err
	}
	defer d.semaphore.release()
	if role == sdk.Yielded {
		d.role = sdk.Yielded
		return d.releaseLock()
	}
	if d.phase == noSession {
		return errors.New("set a role: there is no session; call Configure first")
	}
	if d.role == sdk.Yielded { // this process takes part again, in the role that the kernel shows
		d.role = 0
		if d.session.Unlocked {
			d.passLock(d.heldLock())
		}
	}
	if err := d.prepare(ctx, false); err != nil {
		return err
	}
	defer d.publish()
	was := d.role
	if err := d.writeRole(ctx, role); err != nil {
		return errors.Join(err, d.planFor(was))
	}
	if d.phase == updated {
		d.setShown(role)
	}
	d.served = d.served || was != sdk.Standby
	d.updateDrain()
	if role == sdk.Active && was != sdk.Active {
		all := sdk.Changes{Full: true}
		return d.finish(ctx, all, d.touched(all))
	}
	return nil
}

// writeRole writes what a role needs. Before the first update the desired state is unknown, so
// everything stays as it is, and the role takes effect with that update.
func (d *Dataplane[P]) writeRole(ctx context.Context, role sdk.Role) error {
	if err := d.planFor(role); err != nil || d.phase != updated {
		return err
	}
	for _, f := range d.families {
		if _, err := d.write(ctx, f, nil); err != nil {
			return err
		}
	}
	return nil
}

// planFor sets the role for which the families plan. Yielded is planned as Standby.
func (d *Dataplane[P]) planFor(role sdk.Role) error {
	d.role = role
	if role == sdk.Yielded {
		role = sdk.Standby
	}
	if role == d.planned {
		return nil
	}
	for _, f := range d.families {
		if err := f.Role(role); err != nil {
			return err
		}
	}
	d.planned = role
	return nil
}

// isWriter reports whether this process may write.
func (d *Dataplane[P]) isWriter() bool {
	return d.lock != nil || d.session.Unlocked && d.role != sdk.Yielded
}

// becomeWriter takes the writer's lock, if this process does not have it. It returns a *sdk.Busy
// while another process has the lock, and if this process has yielded.
func (d *Dataplane[P]) becomeWriter() error {
	switch {
	case d.role == sdk.Yielded:
		return &sdk.Busy{Mode: d.name()}
	case d.lock != nil || d.session.Unlocked:
		return nil
	}
	lock, err := d.ledger.TryLock(d.name())
	if err != nil {
		return err
	}
	d.lock = lock
	d.passLock(lock)
	return nil
}

// heldLock returns the lock to pass to the families; nil if this process is not the writer.
func (d *Dataplane[P]) heldLock() *ledger.Lock {
	if d.session.Unlocked && d.isWriter() {
		return new(ledger.Lock)
	}
	return d.lock
}

// passLock passes the lock to the families, or nil if this process is no longer the writer. The
// state of the kernel becomes unknown, because another process may have written before.
func (d *Dataplane[P]) passLock(lock *ledger.Lock) {
	for _, f := range d.families {
		f.known, f.lost = false, ""
		f.Hold(lock)
	}
	d.tellLost()
}

// releaseLock ends the right to write, and to repair.
func (d *Dataplane[P]) releaseLock() error {
	d.passLock(nil)
	d.setShown(0)
	return d.unlock()
}

// unlock releases the lock, if this process has it.
func (d *Dataplane[P]) unlock() error {
	lock := d.lock
	d.lock = nil
	if lock == nil {
		return nil
	}
	return lock.Unlock()
}

// yieldWithoutHost releases the writer's lock of a process whose host is gone. The kernel stays as
// it is. The process takes part again in the next session.
func (d *Dataplane[P]) yieldWithoutHost(why string) {
	d.log.Warn("released the writer's lock", "why", why)
	d.role = sdk.Yielded
	if err := d.releaseLock(); err != nil {
		d.log.Warn("cannot release the writer's lock", "err", err)
	}
}

// Cleanup removes everything of the mode from the node, and describes it. It needs the writer's
// lock: another process that has it would write everything again.
func (d *Dataplane[P]) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	if err := d.semaphore.call(ctx); err != nil {
		return nil, err
	}
	defer d.semaphore.release()
	if !l.DryRun && d.lock == nil {
		lock, err := lockFor(d.dir, d.name())
		if err != nil {
			return nil, err
		}
		if lock != nil {
			defer func() { _ = lock.Unlock() }() // fails only if the lock's file is closed already
		}
	}
	gone, err := d.mode.Sweep(ctx, l, d.env())
	if l.DryRun {
		return gone, err
	}
	for _, f := range d.families {
		f.known, f.lost = false, ""
		f.Masquerade().Forget()
	}
	d.tellLost()
	d.state, d.phase = sdk.State{}, min(d.phase, configured) // the next update must be a Full
	d.role = 0
	if d.setShown(0); err == nil {
		d.setShown(sdk.Absent) // reading it would create again what rules need besides rules
	}
	return gone, err
}

// lockFor returns the writer's lock of a mode from the ledger in dir. It returns nil if this
// process cannot reach the ledger: such a process cannot remove what a writer wrote.
func lockFor(dir, mode string) (*ledger.Lock, error) {
	shared, err := ledger.Open(dir)
	if err == nil {
		var lock *ledger.Lock
		if lock, err = shared.TryLock(mode); err == nil {
			return lock, nil
		}
	}
	if sysctl.OutOfReach(err) {
		return nil, nil
	}
	return nil, err
}
