// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"

	"github.com/pointsman/pointsman/sdk"
)

// This file is for what was planned while another process was the writer.

// writes reports whether this process has rules, and the right to write them.
func (d *Dataplane) writes() bool { return d.way != nil && d.way.rules.lock != nil }

// aside begins what is done between calls. A call ends it.
func (d *Dataplane) aside(ctx context.Context) (context.Context, func(), error) {
	d.between.Lock()
	ctx, cancel := context.WithCancel(ctx)
	d.urgent.Store(&cancel)
	d.mu.Lock()
	leave := func() {
		d.mu.Unlock()
		cancel()
		d.between.Unlock()
	}
	if err := ctx.Err(); err != nil {
		leave()
		return nil, nil, err
	}
	return ctx, leave, nil
}

// tryLock tries the right to write, if it is wanted. The caller has the mutex.
func (d *Dataplane) tryLock() error {
	if d.way == nil || d.role == sdk.Yielded {
		d.claim.Forget()
		return nil
	}
	return d.way.rules.tryLock()
}

// writePlanned opens and writes all that was planned.
func (d *Dataplane) writePlanned(ctx context.Context) ([]sdk.Failure, error) {
	done, err := d.carry(ctx, sdk.Changes{})
	if err == nil {
		d.state.Confirm(done.failed...)
	}
	return done.failed, err
}

// everything is the whole state as a change. What the table has of it was only planned:
// a Service that cannot have its places has none.
func (d *Dataplane) everything() sdk.Changes {
	all := sdk.Changes{Node: true, Full: true}
	for name := range d.table.claims {
		if !d.state.Kept[name] {
			d.table.put(name, nil)
		}
	}
	for name, svc := range d.state.Services {
		if !d.state.Kept[name] {
			all.Services = append(all.Services, sdk.Change{Name: name, After: &svc})
		}
	}
	return all
}
