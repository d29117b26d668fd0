// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// Sync makes the kernel follow u.
func (d *Dataplane[P]) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if err := d.semaphore.call(ctx); err != nil {
		return sdk.Result{}, err
	}
	defer d.semaphore.done()
	if d.phase == noSession {
		return sdk.Result{}, fmt.Errorf("an update before a session: %w", sdk.ErrResync)
	}
	if err := d.becomeWriter(); err != nil {
		return sdk.Result{}, err
	}
	changes, err := d.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	result, err := d.reconcile(ctx, changes)
	if err != nil {
		return sdk.Result{}, err
	}
	d.state.Confirm(result.Failed...)
	return result, nil
}

// reconcile makes all families follow the changes.
func (d *Dataplane[P]) reconcile(ctx context.Context, changes sdk.Changes) (sdk.Result, error) {
	if err := d.begin(ctx, changes.Full); err != nil {
		return sdk.Result{}, err
	}
	if changes.Node || changes.Full {
		if err := d.node(); err != nil {
			return sdk.Result{}, err
		}
	}
	d.phase = updated
	defer d.publish()
	touched := d.touched(changes)
	result, err := d.follow(ctx, touched)
	if err != nil {
		return sdk.Result{}, err
	}
	d.tellShown(d.planned)
	result.Failed = append(result.Failed, d.unserved(touched)...)
	slices.SortFunc(result.Failed, func(a, b sdk.Failure) int { return a.Name.Compare(b.Name) })
	for name := range touched {
		delete(d.failed, name)
	}
	for _, f := range result.Failed {
		d.failed[f.Name] = true
	}
	return result, d.afterwards(ctx, changes, result.Failed)
}

// begin takes the writer's lock, and has the families adopt what the kernel has where that is
// not known; afresh: wherever it may have changed.
func (d *Dataplane[P]) begin(ctx context.Context, afresh bool) error {
	d.status.step()
	if err := d.becomeWriter(); err != nil {
		return err
	}
	shown, errs := make([]sdk.Role, len(d.families)), make([]error, len(d.families))
	var all sync.WaitGroup
	for i, f := range d.families { // at once: a process that was killed is back that much sooner
		if !f.adopted || afresh || d.role == 0 {
			all.Go(func() { shown[i], errs[i] = d.adopt(ctx, f, All) })
		}
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if d.role == 0 {
		ours := slices.ContainsFunc(d.families, func(f *family[P]) bool { return f.Ours() })
		d.tellShown(observed(shown, ours))
		return d.planFor(latest(shown))
	}
	return d.planFor(d.role)
}

// readShown reads the kernel and reports the role that it shows. The monitor calls it before the first update of a
// session. It writes nothing and needs no lock.
func (d *Dataplane[P]) readShown(ctx context.Context) {
	shown, ours := make([]sdk.Role, len(d.families)), false
	for i, f := range d.families {
		role, err := f.Adopt(ctx, 0)
		if err != nil {
			if ctx.Err() == nil {
				d.warn("cannot read which role the kernel shows", f, "", err)
			}
			return
		}
		shown[i], ours = role, ours || f.Ours()
	}
	d.tellShown(observed(shown, ours))
}

// observed returns the role that the families show together.
func observed(shown []sdk.Role, ours bool) sdk.Role {
	if !ours {
		return sdk.Absent
	}
	return latest(shown)
}

// tellShown reports the role that the kernel shows; zero: that is not known.
func (d *Dataplane[P]) tellShown(role sdk.Role) {
	d.shown = role
	d.status.tell(func(r *sdk.Report) { r.Shown = role })
}

// latest is the role that several families show together.
func latest(shown []sdk.Role) sdk.Role {
	for _, role := range []sdk.Role{sdk.Active, sdk.Draining} {
		if slices.Contains(shown, role) {
			return role
		}
	}
	return sdk.Standby
}

// adopt has f read parts of the kernel.
func (d *Dataplane[P]) adopt(ctx context.Context, f *family[P], which Parts) (sdk.Role, error) {
	f.adopted = f.adopted && which != All
	role, err := f.Adopt(ctx, which)
	f.adopted = err == nil && (f.adopted || which == All)
	return role, err
}

// node tells the families what the node is like, and sees to the kernel's parameters that
// must be as they should before anything is written.
func (d *Dataplane[P]) node() error {
	if err := d.settle(); err != nil {
		return err
	}
	for _, f := range d.families {
		if err := f.Node(d.state.Node); err != nil {
			return err
		}
	}
	return nil
}

// settle gives back the kernel's parameters that are no longer asked for, and sets those that
// must be there first. It goes before everything that is written: what keeps a parameter from
// doing harm stands until then.
func (d *Dataplane[P]) settle() error {
	if d.open.Settings == nil {
		return nil
	}
	all := d.open.Settings(d.state.Node)
	if err := all.Release(d.ledger, d.name(), d.log); err != nil {
		return err
	}
	return d.take(all.First())
}

// take sets parameters, and notes those that cannot be set.
func (d *Dataplane[P]) take(all sysctl.Settings) error {
	defer func() {
		for _, s := range all {
			if _, as := s.Now(); as {
				d.seen[s] = true
			}
		}
	}()
	for _, s := range all {
		delete(d.status.unset, s.Path)
	}
	return all.Take(d.ledger, d.name(), func(s sysctl.Setting, err error) {
		d.status.unset[s.Path] = fmt.Sprintf("%s%s stays as it is, and was to be %s: %v; set it on the machine itself", sdk.NotSet, s.Path, s.Value, err)
	})
}

// follow writes what the touched Services ask for, in one family after the other.
func (d *Dataplane[P]) follow(ctx context.Context, touched map[sdk.Name]bool) (sdk.Result, error) {
	var result sdk.Result
	d.share(ctx)
	for _, f := range d.families {
		d.status.step()
		pieces, failed := d.render(f, touched)
		result.Failed = append(result.Failed, failed...)
		failed, err := d.write(ctx, f, pieces)
		result.Failed = append(result.Failed, failed...)
		if err != nil {
			return result, err
		}
	}
	return result, nil
}

// share makes sure of the chains that all dataplanes share, in all families before one of them
// is written: until then what was read of them holds. Where that fails apply tries again, and says
// why: by then what is desired is put, so that the monitor goes on with it.
func (d *Dataplane[P]) share(ctx context.Context) {
	for _, f := range d.families {
		if _, err := f.Masquerade().Ensure(ctx, d.state.Node.MasqueradeBit); err != nil {
			return
		}
	}
}

// render is the Ps of f that change: those of touched Services, and none for those that are
// gone. What cannot be rendered keeps what serves it.
func (d *Dataplane[P]) render(f *family[P], touched map[sdk.Name]bool) (map[sdk.Name]P, []sdk.Failure) {
	had, pieces := f.Pieces(), make(map[sdk.Name]P, len(touched))
	var failed []sdk.Failure
	for name := range touched {
		svc, wanted := d.state.Services[name]
		_, has := had[name]
		switch {
		case wanted && f.Serves(name.Family):
			p, err := f.Want(svc)
			if err != nil {
				failed = append(failed, sdk.Failure{Name: name, Err: err})
				if has {
					continue
				}
				p = f.Keep(name) // what a process before this one made of it
			}
			pieces[name] = p
		case has:
			pieces[name] = *new(P)
		}
	}
	return pieces, failed
}

// touched are the names of the Services that must be looked at after a change: those that
// changed; all, when the node did; and after a Full also those that were put, for it removes
// what it does not name.
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
			for name := range f.Pieces() {
				names[name] = true
			}
		}
	}
	return names
}

// unserved refuses the touched Services that no family serves on this node.
func (d *Dataplane[P]) unserved(touched map[sdk.Name]bool) []sdk.Failure {
	var failed []sdk.Failure
	for name := range touched {
		if _, wanted := d.state.Services[name]; wanted && d.serving(name.Family) == nil {
			failed = append(failed, sdk.Failure{Name: name, Err: &sdk.Refusal{
				Field: "name.family", Why: fmt.Sprintf("this node has nothing to serve %s with", name.Family), Try: "pointsman plugin info " + d.name() + ", for what it has",
			}})
		}
	}
	return failed
}

// afterwards is what follows once the kernel serves: the rules go that another backend has, the
// other parameters are set, and the UDP flows end that lead nowhere now.
func (d *Dataplane[P]) afterwards(ctx context.Context, c sdk.Changes, failed []sdk.Failure) error {
	if d.phase != updated || d.role != sdk.Active {
		return nil
	}
	d.noteAdded(c)
	d.leaveOther(ctx)
	if (c.Full || c.Node) && d.open.Settings != nil {
		if err := d.take(d.open.Settings(d.state.Node)); err != nil {
			return err
		}
	}
	return d.forget(c, failed)
}
