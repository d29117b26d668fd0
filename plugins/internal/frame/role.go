// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"

	"github.com/pointsman/pointsman/plugins/internal/writer"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// This file says whether this process writes, and in which role: by calls of the host, by the
// writer's lock, and by a Cleanup.

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
	if !d.session {
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
		return errors.Join(err, d.play(was))
	}
	d.caught = d.caught || was != sdk.Standby
	if !d.writes() {
		return nil // it takes effect once this process is the writer
	}
	d.drainOrNot()
	if role == sdk.Active && was != sdk.Active {
		return d.afterwards(ctx, sdk.Changes{Full: true}, nil)
	}
	return nil
}

// become makes the kernel what the role asks for. Before the first update it is not known
// what is desired: what serves goes on, and the role takes effect with that update.
func (d *Dataplane[P]) become(ctx context.Context, role sdk.Role) error {
	if err := d.play(role); err != nil || !d.writes() || !d.updated {
		return err
	}
	if d.claim.Owes() {
		return d.writePlanned(ctx)
	}
	for _, f := range d.families {
		if _, err := d.write(ctx, f, nil); err != nil {
			return err
		}
	}
	return nil
}

// play has the families plan for role. One that has yielded plans to catch nothing.
func (d *Dataplane[P]) play(role sdk.Role) error {
	d.role = role
	if role == sdk.Yielded {
		role = sdk.Standby
	}
	if role == d.played {
		return nil
	}
	for _, f := range d.families {
		if err := f.Role(role); err != nil {
			return err
		}
	}
	d.played = role
	return nil
}

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
		f.known, f.lost = false, ""
		f.Hold(lock)
	}
	d.tellLost()
}

// release gives up the right to write, and with it the task to repair.
func (d *Dataplane[P]) release() error {
	if !d.open.Unlocked {
		d.claim.Forget()
	}
	for _, f := range d.families {
		f.known, f.lost = false, ""
		f.Hold(nil)
	}
	d.tellLost()
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

// standDown ends being the writer. What the kernel has stays. A host that wants this process to serve says so by a
// role, and after the end of its host by a new session.
func (d *Dataplane[P]) standDown(why string) {
	d.log.Warn("standing down", "why", why)
	d.role, d.orphaned = sdk.Yielded, d.gone() > 0
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

// Cleanup removes every trace of the mode from the node, and names what goes. A writer that
// is another process finds a mark, and stands down: it would put everything back.
func (d *Dataplane[P]) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	if err := d.semaphore.call(ctx); err != nil {
		return nil, err
	}
	defer d.semaphore.done()
	if !l.DryRun && d.lock == nil {
		if err := d.cleaned().Leave(d.dir, d.name()); err != nil {
			return nil, err
		}
	}
	gone, err := d.mode.Sweep(ctx, l, d.env())
	if !l.DryRun {
		d.unlearn()
	}
	return gone, err
}

// unlearn forgets what is in the kernel, and what is desired: the next update is a Full.
func (d *Dataplane[P]) unlearn() {
	for _, f := range d.families {
		f.known, f.lost = false, ""
		f.shared().Forget()
	}
	d.tellLost()
	d.state, d.updated = sdk.State{}, false
	d.role = 0
	d.claim.Begin()
	if d.lock == nil && !d.open.Unlocked {
		d.claim.Forget() // the next call tries it
	}
}
