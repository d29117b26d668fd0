// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"

	"github.com/pointsman/pointsman/sdk"
)

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
	if d.role == sdk.Yielded {
		d.unyield()
	}
	if err := d.begin(ctx, false); err != nil {
		return err
	}
	defer d.publish()
	was := d.role
	if err := d.become(ctx, role); err != nil {
		return errors.Join(err, d.play(was))
	}
	d.caught, d.stands = d.caught || was != sdk.Standby, role == sdk.Standby
	if !d.writes() {
		return nil // it takes effect once this process is the writer
	}
	d.drainOrNot()
	if role == sdk.Active && was != sdk.Active {
		return d.afterwards(sdk.Changes{Full: true}, nil)
	}
	return nil
}

// unyield has the process take part again, in the role that the kernel shows.
func (d *Dataplane[P]) unyield() {
	d.role = 0
	if d.open.Unlocked {
		d.hold()
	}
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
