// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// This file says whether this process writes, and in which role: by calls of the host, and by the
// writer's lock.

// SetRole changes what the kernel catches.
func (d *Dataplane[P]) SetRole(ctx context.Context, role sdk.Role) error {
	if !role.Known() {
		return &sdk.Refusal{Field: "role", Why: "unknown role " + role.String()}
	}
	if err := d.semaphore.call(ctx); err != nil {
		return err
	}
	defer d.semaphore.done()
	if role == sdk.Yielded {
		d.role = sdk.Yielded
		return d.release()
	}
	if d.phase == noSession {
		return errors.New("a role before a session: call Configure first")
	}
	if d.role == sdk.Yielded { // it takes part again, in the role that the kernel shows
		d.role = 0
		if d.open.Unlocked {
			d.hold()
		}
	}
	if err := d.begin(ctx, false); err != nil {
		return err
	}
	defer d.publish()
	was := d.role
	if err := d.become(ctx, role); err != nil {
		return errors.Join(err, d.planFor(was))
	}
	if d.phase == updated {
		d.tellShown(role)
	}
	d.served = d.served || was != sdk.Standby
	d.drainOrNot()
	if role == sdk.Active && was != sdk.Active {
		return d.afterwards(ctx, sdk.Changes{Full: true}, nil)
	}
	return nil
}

// become makes the kernel what the role asks for. Before the first update it is not known
// what is desired: what serves goes on, and the role takes effect with that update.
func (d *Dataplane[P]) become(ctx context.Context, role sdk.Role) error {
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

// planFor has the families plan for role. One that has yielded plans to catch nothing.
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

// writes reports whether this process may write.
func (d *Dataplane[P]) writes() bool {
	return d.lock != nil || d.open.Unlocked && d.role != sdk.Yielded
}

// becomeWriter takes the writer's lock, if this process does not have it. The error is a *sdk.Busy while
// another process does, and in a process that has yielded.
func (d *Dataplane[P]) becomeWriter() error {
	switch {
	case d.role == sdk.Yielded:
		return &sdk.Busy{Mode: d.name()}
	case d.lock != nil || d.open.Unlocked:
		return nil
	}
	lock, err := d.ledger.TryLock(d.name())
	if err != nil {
		return err
	}
	d.lock = lock
	d.hold()
	return nil
}

// hold hands the lock, or none, to the families. What they knew is of before.
func (d *Dataplane[P]) hold() {
	lock := d.lock
	if d.open.Unlocked && d.writes() {
		lock = new(ledger.Lock)
	}
	for _, f := range d.families {
		f.adopted, f.lost = false, ""
		f.Hold(lock)
	}
	d.tellLost()
}

// release gives up the right to write, and with it the task to repair.
func (d *Dataplane[P]) release() error {
	for _, f := range d.families {
		f.adopted, f.lost = false, ""
		f.Hold(nil)
	}
	d.tellLost()
	d.tellShown(0)
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

// yieldWithoutHost releases the writer's lock in a process whose host is gone. What the kernel has stays. The next
// session of a host ends that.
func (d *Dataplane[P]) yieldWithoutHost(why string) {
	d.log.Warn("released the writer's lock", "why", why)
	d.role = sdk.Yielded
	if err := d.release(); err != nil {
		d.log.Warn("cannot release the writer's lock", "err", err)
	}
}

// Cleanup removes every trace of the mode from the node, and names what goes. It needs the writer's lock: another
// process that has it would put everything back.
func (d *Dataplane[P]) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	if err := d.semaphore.call(ctx); err != nil {
		return nil, err
	}
	defer d.semaphore.done()
	if !l.DryRun && d.lock == nil {
		lock, err := lockFor(d.dir, d.name())
		if err != nil {
			return nil, err
		}
		if lock != nil {
			defer func() { _ = lock.Unlock() }() // closing a lock's file fails only if it is closed
		}
	}
	gone, err := d.mode.Sweep(ctx, l, d.env())
	if !l.DryRun {
		d.unlearn()
		if err == nil {
			d.tellShown(sdk.Absent) // to read it would make anew what rules need beside rules
		}
	}
	return gone, err
}

// unlearn forgets what is in the kernel, and what is desired: the next update is a Full.
func (d *Dataplane[P]) unlearn() {
	for _, f := range d.families {
		f.adopted, f.lost = false, ""
		f.Masquerade().Forget()
	}
	d.tellLost()
	d.state, d.phase = sdk.State{}, min(d.phase, configured)
	d.role = 0
	d.tellShown(0)
}

// lockFor returns the writer's lock of a mode, by the ledger in dir. In a process to which that is out of reach it
// locks nothing: such a process removes nothing that a writer wrote.
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
