// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// This file says what would be written, in a process that writes nothing.

// A Detailed is a Plan that can say more of what differs than its Steps do.
type Detailed interface {
	// Details are the Steps, and what differs in each of them: a step is a line, and lines
	// that are indented belong to the one before. They are asked for before Apply.
	Details() []string
}

// Plan says what u, which is a Full, would have this process write in the role Active.
func (d *Dataplane[P]) Plan(ctx context.Context, setup sdk.Setup, u sdk.Update) (sdk.Result, error) {
	if !u.Full {
		return sdk.Result{}, errors.New("plan: the update is no Full")
	}
	if err := d.yield(ctx); err != nil {
		return sdk.Result{}, err
	}
	if _, err := d.Configure(ctx, setup); err != nil {
		return sdk.Result{}, err
	}
	if err := d.semaphore.call(ctx); err != nil {
		return sdk.Result{}, err
	}
	defer d.semaphore.done()
	changes, err := d.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	if err := d.begin(ctx, true); err != nil {
		return sdk.Result{}, err
	}
	result, err := d.differences(ctx, d.touched(changes))
	slices.SortFunc(result.Failed, func(a, b sdk.Failure) int { return a.Name.Compare(b.Name) })
	return result, err
}

// yield has this process never try for the writer's lock, and let go of it if it has it.
func (d *Dataplane[P]) yield(ctx context.Context) error {
	if err := d.semaphore.call(ctx); err != nil {
		return err
	}
	defer d.semaphore.done()
	d.role = sdk.Yielded
	return d.release()
}

// differences are what the touched Services ask for and the families, which have adopted what
// the kernel has, lack.
func (d *Dataplane[P]) differences(ctx context.Context, touched map[sdk.Name]bool) (sdk.Result, error) {
	settings, err := d.unset()
	if err != nil {
		return sdk.Result{}, err
	}
	result := sdk.Result{Planned: true, Failed: d.unserved(touched), Steps: settings}
	for _, f := range d.families {
		d.status.step()
		if err := errors.Join(f.Node(d.state.Node), f.Role(sdk.Active)); err != nil {
			return result, err
		}
		pieces, failed := d.render(f, touched)
		result.Failed = append(result.Failed, failed...)
		shared, err := f.shared().Plan(ctx, d.state.Node.MasqueradeBit)
		if err != nil {
			return result, err
		}
		f.Put(pieces)
		result.Steps = slices.Concat(result.Steps, shared, details(f.Plan()))
		f.known = false
	}
	d.played = 0
	return result, nil
}

// unset are the kernel's parameters that would be set.
func (d *Dataplane[P]) unset() ([]string, error) {
	if d.open.Settings == nil {
		return nil, nil
	}
	all := d.open.Settings(d.state.Node)
	if d.setup.Sysctls == sdk.ExpectSysctls {
		return nil, all.Expect()
	}
	return all.Steps(), nil
}

// details are what p can say of itself.
func details(p Plan) []string {
	if p, ok := p.(Detailed); ok {
		return p.Details()
	}
	return p.Steps()
}
