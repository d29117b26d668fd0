// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// write makes pieces desired and writes them, with everything else that was touched. It returns
// the Services that the kernel refused, which keep what served them; the others are written.
func (d *Dataplane[P]) write(ctx context.Context, f *family[P], pieces map[sdk.Name]P) (failed []sdk.Failure, err error) {
	names := slices.AppendSeq(make([]sdk.Name, 0, len(pieces)), maps.Keys(pieces))
	err = bisect(names, &failed, func(names []sdk.Name) ([]sdk.Name, []sdk.Failure, error) {
		some := pieces
		if len(names) < len(pieces) {
			some = make(map[sdk.Name]P, len(names))
			for _, name := range names {
				some[name] = pieces[name]
			}
		}
		return d.try(ctx, f, some)
	})
	if err == nil && slices.ContainsFunc(failed, func(b sdk.Failure) bool { return errors.As(b.Err, new(*Refused)) }) {
		_, err = d.writeOnce(ctx, f) // reverts what the last refused try has written
	}
	return failed, err
}

// bisect calls try with names. If that returns a *Refused, it calls try with the suspects and with
// the others, or with halves, until a refused Service is alone. It appends that to failed, with
// the Services that try returns.
func bisect(names []sdk.Name, failed *[]sdk.Failure, try func([]sdk.Name) (suspects []sdk.Name, without []sdk.Failure, err error)) error {
	suspects, without, err := try(names)
	*failed = append(*failed, without...)
	switch {
	case err == nil, !errors.As(err, new(*Refused)), len(names) == 0:
		return err
	case len(names) == 1:
		*failed = append(*failed, sdk.Failure{Name: names[0], Err: err})
		return nil
	}
	slices.SortFunc(names, sdk.Name.Compare) // so that each call tries the same halves
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
	if err := bisect(rest, failed, try); err != nil {
		return err
	}
	return bisect(bad, failed, try)
}

// try writes all of pieces, except for those that the kernel refuses for a reason of their own,
// which are in failed. With a *Refused none of pieces stays desired, and one of the suspects is
// refused.
func (d *Dataplane[P]) try(ctx context.Context, f *family[P], pieces map[sdk.Name]P) (suspects []sdk.Name, failed []sdk.Failure, err error) {
	before := make(map[sdk.Name]P, len(pieces))
	for name := range pieces {
		p, has := f.Desired()[name]
		if !has {
			p = f.Installed()[name] // written by a former process
		}
		before[name] = p
	}
	f.SetDesired(pieces)
	for first := true; ; first = false {
		bad, err := d.writeOnce(ctx, f)
		refused := new(Refused)
		switch {
		case errors.As(err, &refused) && ctx.Err() == nil && first:
			continue // the next one reads the kernel: perhaps another program removed something that pieces need
		case errors.As(err, &refused) && ctx.Err() == nil:
			if _, err := d.adopt(ctx, f, All); err != nil {
				return nil, nil, err
			}
			f.SetDesired(before)
			return refused.Suspects, nil, err
		case err != nil || len(bad) == 0:
			return nil, failed, err
		}
		served := make(map[sdk.Name]P, len(bad))
		for _, b := range bad {
			if slices.ContainsFunc(failed, func(f sdk.Failure) bool { return f.Name == b.Name }) {
				f.known = false // the kernel refuses what served the Service, too
				return nil, nil, b.Err
			}
			p, has := before[b.Name]
			if !has {
				p = f.Installed()[b.Name]
			}
			served[b.Name] = p
		}
		f.SetDesired(served)
		failed = append(failed, bad...)
	}
}

// writeOnce writes what differs from the desired state. It first reads the kernel if its state is
// unknown.
func (d *Dataplane[P]) writeOnce(ctx context.Context, f *family[P]) ([]sdk.Failure, error) {
	if !f.known {
		if _, err := d.adopt(ctx, f, All); err != nil {
			return nil, err
		}
	}
	_, failed, err := d.apply(ctx, f)
	return failed, err
}

// apply writes the chains that all dataplanes share, because rules lead to them, and then what
// differs.
func (d *Dataplane[P]) apply(ctx context.Context, f *family[P]) (plan Plan, failed []sdk.Failure, err error) {
	if _, err := f.Masquerade().Ensure(ctx, d.state.Node.MasqueradeBit); err != nil {
		return nil, nil, err
	}
	plan = f.Plan()
	d.noteRemoved(plan)
	failed, err = plan.Apply(ctx)
	f.known = err == nil
	return plan, failed, err
}
