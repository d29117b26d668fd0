// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// Sync applies u to the desired state, and writes what changes.
func (d *Dataplane[P]) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if err := d.semaphore.call(ctx); err != nil {
		return sdk.Result{}, err
	}
	defer d.semaphore.release()
	if d.phase == noSession {
		return sdk.Result{}, fmt.Errorf("apply an update before Configure: %w", sdk.ErrResync)
	}
	if err := d.becomeWriter(); err != nil {
		return sdk.Result{}, err
	}
	changes, err := d.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	failed, err := d.reconcile(ctx, changes)
	if err != nil {
		return sdk.Result{}, err
	}
	d.state.Confirm(failed...)
	return sdk.Result{Failed: failed}, nil
}

// reconcile writes changes in all families, and returns the Services that failed, sorted.
func (d *Dataplane[P]) reconcile(ctx context.Context, changes sdk.Changes) ([]sdk.Failure, error) {
	if err := d.prepare(ctx, changes.Full); err != nil {
		return nil, err
	}
	if changes.Node || changes.Full {
		if err := d.setNode(); err != nil {
			return nil, err
		}
	}
	d.phase = updated
	defer d.publish()
	touched := d.touched(changes)
	failed := d.unservable(touched)
	for _, f := range d.families {
		d.status.step()
		pieces, unrendered := d.render(f, touched)
		refused, err := d.write(ctx, f, pieces)
		if err != nil {
			return nil, err
		}
		failed = slices.Concat(failed, unrendered, refused)
	}
	d.setShown(d.planned)
	slices.SortFunc(failed, func(a, b sdk.Failure) int { return a.Name.Compare(b.Name) })
	for name := range touched {
		delete(d.failed, name)
	}
	for _, f := range failed {
		d.failed[f.Name] = true
	}
	return failed, d.finish(ctx, changes, touched)
}

// prepare takes the writer's lock, and adopts the families whose state is unknown; all of them if
// afresh is set. If no role was set, the role that the kernel shows is planned from now on.
func (d *Dataplane[P]) prepare(ctx context.Context, afresh bool) error {
	d.status.step()
	if err := d.becomeWriter(); err != nil {
		return err
	}
	shown, errs := make([]sdk.Role, len(d.families)), make([]error, len(d.families))
	var all sync.WaitGroup
	for i, f := range d.families { // concurrently, because a process that was killed serves again only afterwards
		if !f.known || afresh || d.role == 0 {
			all.Go(func() { shown[i], errs[i] = d.adopt(ctx, f, All) })
		}
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if d.role != 0 {
		return d.planFor(d.role)
	}
	d.setShown(d.observedRole(shown))
	return d.planFor(joinedRole(shown))
}

// readShown reads the kernel and reports the role that it shows. The monitor calls it before the
// first update of a session. It writes nothing and needs no lock.
func (d *Dataplane[P]) readShown(ctx context.Context) {
	shown := make([]sdk.Role, len(d.families))
	for i, f := range d.families {
		var err error
		if shown[i], err = f.Adopt(ctx, 0); err != nil {
			if ctx.Err() == nil {
				d.warn("cannot read which role the kernel shows", f, "", err)
			}
			return
		}
	}
	d.setShown(d.observedRole(shown))
}

// observedRole returns the role of several families in a report: Absent if no family found
// objects of this dataplane.
func (d *Dataplane[P]) observedRole(shown []sdk.Role) sdk.Role {
	if !slices.ContainsFunc(d.families, func(f *family[P]) bool { return f.Ours() }) {
		return sdk.Absent
	}
	return joinedRole(shown)
}

// joinedRole returns the role of a dataplane whose families show these roles.
func joinedRole(shown []sdk.Role) sdk.Role {
	for _, role := range []sdk.Role{sdk.Active, sdk.Draining} {
		if slices.Contains(shown, role) {
			return role
		}
	}
	return sdk.Standby
}

// setShown reports the role that the kernel shows; zero: it is unknown.
func (d *Dataplane[P]) setShown(role sdk.Role) {
	d.shown = role
	d.status.change(func(r *sdk.Report) { r.Shown = role })
}

// adopt reads parts of the kernel into f.
func (d *Dataplane[P]) adopt(ctx context.Context, f *family[P], which Parts) (sdk.Role, error) {
	f.known = f.known && which != All
	role, err := f.Adopt(ctx, which)
	f.known = err == nil && (f.known || which == All)
	return role, err
}

// setNode passes the node to all families. It first gives back the kernel parameters that the
// node no longer needs, and sets those that must be set before anything is written.
func (d *Dataplane[P]) setNode() error {
	if d.session.Settings != nil {
		all := d.session.Settings(d.state.Node)
		if err := all.Release(d.ledger, d.name(), d.log); err != nil {
			return err
		}
		if err := d.takeSettings(all.First()); err != nil {
			return err
		}
	}
	for _, f := range d.families {
		if err := f.Node(d.state.Node); err != nil {
			return err
		}
	}
	return nil
}

// render returns the Ps of the touched Services of f, and a zero P for each Service that is gone.
// A Service that cannot be rendered keeps what serves it.
func (d *Dataplane[P]) render(f *family[P], touched map[sdk.Name]bool) (map[sdk.Name]P, []sdk.Failure) {
	had, pieces := f.Desired(), make(map[sdk.Name]P, len(touched))
	var failed []sdk.Failure
	for name := range touched {
		svc, exists := d.state.Services[name]
		_, has := had[name]
		switch {
		case exists && f.Serves(name.Family):
			p, err := f.Want(svc)
			if err != nil {
				failed = append(failed, sdk.Failure{Name: name, Err: err})
				if has {
					continue
				}
				p = f.Installed()[name] // written by a former process
			}
			pieces[name] = p
		case has:
			pieces[name] = *new(P)
		}
	}
	return pieces, failed
}

// touched returns the names of the Services to compare after changes: those that changed; all, if
// the node changed; and after a Full also those that it does not name.
func (d *Dataplane[P]) touched(c sdk.Changes) map[sdk.Name]bool {
	names := make(map[sdk.Name]bool, len(c.Services))
	for _, change := range c.Services {
		names[change.Name] = true
	}
	if c.Full || c.Node {
		for name := range d.state.Services {
			names[name] = true
		}
	}
	if c.Full {
		for _, f := range d.families {
			for name := range f.Desired() {
				names[name] = true
			}
		}
	}
	return names
}

// unservable returns a refusal of each touched Service of an IP family that no Family serves.
func (d *Dataplane[P]) unservable(touched map[sdk.Name]bool) (failed []sdk.Failure) {
	for name := range touched {
		if _, exists := d.state.Services[name]; exists && d.serving(name.Family) == nil {
			failed = append(failed, sdk.Failure{Name: name, Err: &sdk.Refusal{
				Field: "name.family", Why: fmt.Sprintf("this dataplane cannot serve %s on this node", name.Family), Try: "pointsman plugin info " + d.name() + ", for the families that it can serve",
			}})
		}
	}
	return failed
}

// finish does what an active dataplane does once the kernel serves: it removes the rules in the
// other backend of iptables, sets the remaining kernel parameters, and deletes UDP flows.
func (d *Dataplane[P]) finish(ctx context.Context, c sdk.Changes, touched map[sdk.Name]bool) error {
	if d.phase != updated || d.role != sdk.Active {
		return nil
	}
	d.noteAdded(c, touched)
	d.sweepOtherBackend(ctx)
	if (c.Full || c.Node) && d.session.Settings != nil {
		if err := d.takeSettings(d.session.Settings(d.state.Node)); err != nil {
			return err
		}
	}
	return d.forgetUDP(touched)
}
