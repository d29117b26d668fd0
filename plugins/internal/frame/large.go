// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

const (
	// amongOthers is how long an update may write large Services while other changes wait
	// for its end. What is left is written between calls.
	amongOthers = time.Second

	// inStandby is the same for a dataplane that was told to stand by: until it is promoted
	// no packet waits for it, and a change of mode waits for all Services.
	inStandby = 2 * time.Minute
)

// A backlog is a large Service that is not written to its end.
type backlog[P any] struct {
	name    sdk.Name
	desired P
	left    int
}

// setApart takes out of pieces those that are too large to be written among others, and
// notes them. What serves them stays meanwhile.
func (f *family[P]) setApart(pieces map[sdk.Name]P) []sdk.Name {
	divider, ok := f.Family.(Divider[P])
	if !ok {
		return nil
	}
	var large []sdk.Name
	for name, p := range pieces {
		delete(f.large, name)
		now, left := divider.Divide(name, p, false)
		if left == 0 {
			continue
		}
		f.large[name] = &backlog[P]{name: name, desired: p, left: left}
		large = append(large, name)
		pieces[name] = now
	}
	return large
}

// waiting are the backlogs, the smallest first.
func (f *family[P]) waiting() []*backlog[P] {
	return slices.SortedFunc(maps.Values(f.large), func(a, b *backlog[P]) int {
		return cmp.Or(cmp.Compare(a.left, b.left), a.name.Compare(b.name))
	})
}

// writeLarge writes the large Services of an update, once all others of all families are
// served, for as long as that may take; the rest of them is written between calls.
func (d *Dataplane[P]) writeLarge(ctx context.Context, large map[*family[P]][]sdk.Name) ([]sdk.Failure, error) {
	if len(large) == 0 {
		return nil, nil
	}
	until := time.Now().Add(d.Among)
	if d.role == sdk.Standby && d.stands {
		until = time.Now().Add(d.InStandby)
	}
	var failed []sdk.Failure
	for _, f := range d.families {
		for _, b := range f.waiting() {
			if !slices.Contains(large[f], b.name) {
				continue
			}
			refused, err := d.writeUntil(ctx, f, b, until)
			failed = append(failed, refused...)
			if err != nil {
				return failed, err
			}
		}
	}
	return failed, nil
}

// writeUntil writes slices of b until it is done, or the time is up.
func (d *Dataplane[P]) writeUntil(ctx context.Context, f *family[P], b *backlog[P], until time.Time) ([]sdk.Failure, error) {
	for {
		d.status.step()
		if !time.Now().Before(until) {
			err := fmt.Errorf("%d parts of it are still to be written; that goes on while other Services are served", b.left)
			return []sdk.Failure{{Name: b.name, Err: err}}, nil
		}
		refused, err := d.writeSlice(ctx, f, b)
		if err != nil || len(refused) > 0 || f.large[b.name] == nil {
			return refused, err
		}
	}
}

// writeSlice writes the next slice of b, which is forgotten once it is served whole, or
// refused.
func (d *Dataplane[P]) writeSlice(ctx context.Context, f *family[P], b *backlog[P]) ([]sdk.Failure, error) {
	next, left := f.Family.(Divider[P]).Divide(b.name, b.desired, true)
	if left == 0 {
		next = b.desired
	}
	refused, err := d.write(ctx, f, map[sdk.Name]P{b.name: next})
	b.left = left
	if left == 0 || err != nil || len(refused) > 0 {
		delete(f.large, b.name)
	}
	return refused, err
}

// proceed writes a slice of what calls have left, and reports whether there is more. A
// slice that has begun is written to its end, also if a call comes: it would have to begin
// anew.
func (d *Dataplane[P]) proceed(ctx context.Context) (more bool) {
	for _, f := range d.families {
		if !d.writes() || !d.updated || !f.known {
			continue // first it is read again
		}
		if ctx.Err() != nil {
			more = more || len(f.large) > 0
			continue
		}
		again, err := d.proceedIn(context.WithoutCancel(ctx), f)
		if err != nil {
			d.log.Warn("cannot write the rest of a large Service", "family", f.served(), "err", err) // it is offered again
		}
		more = more || again
	}
	if more {
		d.publish()
	}
	return more
}

func (d *Dataplane[P]) proceedIn(ctx context.Context, f *family[P]) (more bool, err error) {
	divider, ok := f.Family.(Divider[P])
	if !ok {
		return false, nil
	}
	if divider.Behind() {
		_, err := d.write(ctx, f, nil)
		return err == nil, err
	}
	waiting := f.waiting()
	if len(waiting) == 0 {
		return false, nil
	}
	refused, err := d.writeSlice(ctx, f, waiting[0])
	if err == nil && len(refused) > 0 {
		return true, refused[0].Err // it is offered again, and named then
	}
	return err == nil, err
}
