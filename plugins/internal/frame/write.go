// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// write makes the kernel have these pieces, and whatever else was touched. A Service that
// is refused keeps what served it, and is named; the others go in without it.
func (d *Dataplane[P]) write(ctx context.Context, f *family[P], pieces map[sdk.Name]P) ([]sdk.Failure, error) {
	var failed []sdk.Failure
	names := slices.AppendSeq(make([]sdk.Name, 0, len(pieces)), maps.Keys(pieces))
	err := sift(names, &failed, func(some []sdk.Name) ([]sdk.Name, []sdk.Failure, error) {
		return d.try(ctx, f, only(pieces, some))
	})
	if err == nil && slices.ContainsFunc(failed, func(b sdk.Failure) bool { return errors.As(b.Err, new(*Refused)) }) {
		_, err = d.attempt(ctx, f) // puts back what a refused try left
	}
	return failed, err
}

// only are those of pieces that have these names.
func only[P any](pieces map[sdk.Name]P, names []sdk.Name) map[sdk.Name]P {
	if len(names) == len(pieces) {
		return pieces
	}
	some := make(map[sdk.Name]P, len(names))
	for _, name := range names {
		some[name] = pieces[name]
	}
	return some
}

// sift has try bring about what names stand for, and bisects those among which one is
// refused, until it stands alone: one bad Service never keeps out the others.
func sift(names []sdk.Name, failed *[]sdk.Failure, try func([]sdk.Name) ([]sdk.Name, []sdk.Failure, error)) error {
	suspects, without, err := try(names)
	*failed = append(*failed, without...)
	switch {
	case err == nil, !errors.As(err, new(*Refused)), len(names) == 0:
		return err
	case len(names) == 1:
		*failed = append(*failed, sdk.Failure{Name: names[0], Err: err})
		return nil
	}
	slices.SortFunc(names, sdk.Name.Compare) // so that it is bisected in the same way each time
	var rest, bad []sdk.Name
	for _, name := range names {
		if slices.Contains(suspects, name) {
			bad = append(bad, name)
		} else {
			rest = append(rest, name)
		}
	}
	if len(rest) == 0 || len(bad) == 0 {
		rest, bad = names[:len(names)/2], names[len(names)/2:]
	}
	if err := sift(rest, failed, try); err != nil {
		return err
	}
	return sift(bad, failed, try)
}

// try is write for all of pieces or none, but for those that fail for a reason of their
// own. With a *Refused everything that was put is taken back, and suspects are the Services
// among which the refused one is.
func (d *Dataplane[P]) try(ctx context.Context, f *family[P], pieces map[sdk.Name]P) (suspects []sdk.Name, failed []sdk.Failure, err error) {
	had, before := f.Pieces(), make(map[sdk.Name]P, len(pieces))
	for name := range pieces {
		if p, has := had[name]; has { // else only the kernel knows what serves it
			before[name] = p
		}
	}
	f.Put(pieces)
	failed, err = d.attempt(ctx, f)
	refused := new(Refused)
	if errors.As(err, &refused) && ctx.Err() == nil {
		// Perhaps another process removed what it needs. The kernel is read afresh now.
		failed, err = d.attempt(ctx, f)
	}
	switch {
	case errors.As(err, &refused) && ctx.Err() == nil:
		if _, adopting := d.adopt(ctx, f, All); adopting != nil {
			return nil, nil, adopting
		}
		f.Put(f.servedBefore(before, maps.Keys(pieces)))
		return refused.Suspects, nil, err
	case err != nil || len(failed) == 0:
		return nil, nil, err
	}
	return nil, failed, d.undo(ctx, f, before, failed)
}

// servedBefore is by what Services were served before a try: by what this process had put, or else by what a process before
// it made of them.
func (f *family[P]) servedBefore(before map[sdk.Name]P, names iter.Seq[sdk.Name]) map[sdk.Name]P {
	served := make(map[sdk.Name]P)
	for name := range names {
		p, has := before[name]
		if !has {
			p = f.Keep(name)
		}
		served[name] = p
	}
	return served
}

// undo puts back what served the Services that failed.
func (d *Dataplane[P]) undo(ctx context.Context, f *family[P], before map[sdk.Name]P, failed []sdk.Failure) error {
	f.Put(f.servedBefore(before, func(yield func(sdk.Name) bool) {
		for _, b := range failed {
			if !yield(b.Name) {
				return
			}
		}
	}))
	again, err := d.attempt(ctx, f)
	for _, b := range again {
		f.adopted = false
		err = errors.Join(err, b.Err)
	}
	return err
}

// attempt writes what differs, once, from what is known or read now.
func (d *Dataplane[P]) attempt(ctx context.Context, f *family[P]) ([]sdk.Failure, error) {
	if !f.adopted {
		if _, err := d.adopt(ctx, f, All); err != nil {
			return nil, err
		}
	}
	_, failed, err := d.apply(ctx, f)
	return failed, err
}

// apply writes what differs, once the chains are there that all dataplanes share: rules lead
// to them.
func (d *Dataplane[P]) apply(ctx context.Context, f *family[P]) (plan Plan, failed []sdk.Failure, err error) {
	if _, err := f.Masquerade().Ensure(ctx, d.state.Node.MasqueradeBit); err != nil {
		return nil, nil, err
	}
	plan = f.Plan()
	d.noteRemoved(f, plan)
	failed, err = plan.Apply(ctx)
	f.adopted = err == nil
	return plan, failed, err
}
