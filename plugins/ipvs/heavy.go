// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// Ceiling is how many endpoints one Service may have, in one family. The kernel keeps the
// endpoints of a virtual server in a list and searches all of it for each that comes, so
// the time grows with the square of their number.
const Ceiling = 20_000

const (
	// slice is how many endpoints of a heavy Service are written at once. Another call
	// waits for so many at most.
	slice = 1000

	// amongOthers is how long an update may write heavy Services while other changes
	// wait for its end. What is left is written between calls.
	amongOthers = time.Second

	// inStandby is the same in Standby: until the dataplane is promoted no packet waits
	// for it, and a change of mode waits for all Services.
	inStandby = 2 * time.Minute
)

// A rest is a Service of which endpoints are still to be written.
type rest struct {
	name  sdk.Name
	piece piece
	left  int
}

func (r rest) unfinished() error {
	return fmt.Errorf("%d endpoints are still to be written; that goes on while other Services are served", r.left)
}

// tooMany refuses a Service whose lists are longer than this node is to have.
func tooMany(svc sdk.Service) error {
	n := max(len(svc.Cluster), len(svc.Local))
	if n <= Ceiling {
		return nil
	}
	return &sdk.Refusal{
		Field: "endpoints",
		Why:   fmt.Sprintf("%d are more than the %d that this dataplane serves for one port of a Service", n, Ceiling),
		Try:   "several Services, or the mode iptables",
	}
}

// setApart takes out of pieces those with many endpoints that the kernel lacks, and notes
// them in rests. What serves them stays meanwhile.
func (s *side) setApart(pieces map[sdk.Name]piece) []sdk.Name {
	var heavy []sdk.Name
	for name, p := range pieces {
		delete(s.rests, name)
		n := s.book.lacks(p)
		if n <= slice {
			continue
		}
		s.rests[name] = &rest{name: name, piece: p, left: n}
		heavy = append(heavy, name)
		delete(pieces, name)
		if _, had := s.book.pieces[name]; !had {
			if kept := s.book.keep(name); !kept.empty() { // a process before this one made it
				pieces[name] = kept
			}
		}
	}
	return heavy
}

// lacks is how many endpoints of p the kernel does not have.
func (b *book) lacks(p piece) int {
	n := 0
	for at, place := range p.places {
		n += len(place.reals) - b.has(at, place)
	}
	return n
}

// has is how many of a place's endpoints the kernel has.
func (b *book) has(at server, p place) int {
	n := 0
	reals := b.have.servers[at].reals
	for _, real := range p.reals {
		if _, there := reals[real]; there {
			n++
		}
	}
	return n
}

// upTo is p with those endpoints that the kernel has, and n more at each place; and how
// many are left then.
func (b *book) upTo(p piece, n int) (some piece, left int) {
	some = p
	some.places = make(map[server]place, len(p.places))
	for at, place := range p.places {
		reals, more := b.have.servers[at].reals, 0
		place.reals = slices.DeleteFunc(slices.Clone(place.reals), func(real netip.AddrPort) bool {
			_, there := reals[real]
			if there {
				return false
			}
			more++
			return more > n
		})
		left += max(0, more-n)
		some.places[at] = place
	}
	return some, left
}

// bringAll writes the heavy Services among names, the smallest first, for as long as
// more says. Those that are not done go on later, and are named.
func (s *side) bringAll(ctx context.Context, names []sdk.Name, more func() bool) ([]sdk.Failure, error) {
	var failed []sdk.Failure
	for _, r := range s.waiting() {
		if !slices.Contains(names, r.name) {
			continue
		}
		for done := false; !done; {
			if !more() {
				failed = append(failed, sdk.Failure{Name: r.name, Err: r.unfinished()})
				break
			}
			var refused []sdk.Failure
			var err error
			if done, refused, err = s.bring(ctx, r); err != nil {
				return failed, err
			}
			failed = append(failed, refused...)
		}
	}
	return failed, nil
}

// waiting are the rests, the smallest first.
func (s *side) waiting() []*rest {
	return slices.SortedFunc(maps.Values(s.rests), func(x, y *rest) int {
		return cmp.Or(cmp.Compare(x.left, y.left), x.name.Compare(y.name))
	})
}

// bring writes a slice of r, and reports whether r is done: served whole, or refused by
// the kernel. Where the role has no virtual server nothing gets less, and the piece is put
// in whole.
func (s *side) bring(ctx context.Context, r *rest) (done bool, refused []sdk.Failure, err error) {
	some, left := s.book.upTo(r.piece, slice)
	if left == 0 || left == r.left {
		some, left = r.piece, 0
	}
	refused, err = s.sync(ctx, map[sdk.Name]piece{r.name: some})
	r.left = left
	if left > 0 && err == nil && len(refused) == 0 {
		return false, nil, nil
	}
	delete(s.rests, r.name)
	return true, refused, err
}

// bring writes the heavy Services of an update, once all others of both families are
// served, for as long as that may take; the rest of them is written between calls.
func (p *plugin) bring(ctx context.Context, heavy map[*side][]sdk.Name) ([]sdk.Failure, error) {
	until := time.Now().Add(p.among)
	if p.role == sdk.Standby && p.stands {
		until = time.Now().Add(inStandby)
	}
	var failed []sdk.Failure
	for _, s := range p.sides {
		more := func() bool { p.status.Step(); return time.Now().Before(until) }
		left, err := s.bringAll(ctx, heavy[s], more)
		failed = append(failed, left...)
		if err != nil {
			return failed, err
		}
	}
	return failed, nil
}

// goOn writes what calls have left, until there is no more or a call waits, which ends
// ctx. A slice that has begun is written whole.
func (p *plugin) goOn(ctx context.Context) error {
	for _, s := range p.sides {
		for _, r := range s.waiting() {
			for done := false; !done; {
				if ctx.Err() != nil || !s.known {
					return nil
				}
				var refused []sdk.Failure
				var err error
				done, refused, err = s.bring(context.WithoutCancel(ctx), r)
				if err != nil {
					return err
				}
				if len(refused) > 0 {
					return refused[0].Err // it is offered again, and named then
				}
			}
		}
	}
	return nil
}
