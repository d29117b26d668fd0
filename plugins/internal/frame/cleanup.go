// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"

	"github.com/pointsman/pointsman/sdk"
)

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
		f.known = false
		clear(f.large)
		if m, ok := f.Family.(Masquerader); ok {
			m.Masquerade().Forget()
		}
	}
	d.state, d.updated = sdk.State{}, false
	d.role = 0
	d.claim.Begin()
	if d.lock == nil && !d.open.Unlocked {
		d.claim.Forget() // the next call tries it
	}
}
