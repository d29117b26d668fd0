// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// Ceiling is how many endpoints one Service may have, in one family.
const Ceiling = 100_000

const (
	// amongOthers is how long an update may write heavy Services while other changes
	// wait for its end. What is left is written between calls.
	amongOthers = time.Second

	// inStandby is the same for a dataplane that was told to stand by: until it is
	// promoted no packet waits for it, and a change of mode waits for all Services.
	inStandby = 2 * time.Minute
)

// A rest is what is still to be written of a heavy Service before its own chains and its
// entries: those that nothing leads to yet, and the parts of its lists.
type rest struct {
	name  sdk.Name
	want  ruleset.Desired
	below []iptables.Chain // still to be written, each behind those that it leads to
	lines int              // of all that was to be written
}

// left are the lines of what is still to be written.
func (r rest) left() int { return ruleset.Lines(r.below) }

// unfinished is why a heavy Service is not served as an update says.
func (r rest) unfinished() error {
	return fmt.Errorf("%d of the %d lines that it needs are still to be written; that goes on while other Services are served", r.left(), r.lines)
}

// slice is how many lines of heavy Services are written at once. Another call waits for
// so many at most.
func (s *side) slice() int {
	if s.Tool.Backend == iptables.NFT {
		return 8000
	}
	return 20_000 // legacy copies the whole table each time
}

// setApart takes out of pieces those that are too big to be written among others, and
// notes them in rests. Those that no node is to have are refused. With afresh the book
// does not know yet what the kernel has of them; that stays.
func (s *side) setApart(pieces map[sdk.Name]ruleset.Desired, state sdk.State, afresh bool) []sdk.Failure {
	var refused []sdk.Failure
	for name, d := range pieces {
		delete(s.rests, name)
		n := listed(state.Services[name])
		below, there := s.missing(d, s.slice())
		switch {
		case n > Ceiling && !d.Empty():
			refused = append(refused, sdk.Failure{Name: name, Err: tooMany(n)})
			there = nil
		case ruleset.Lines(below) > s.slice():
			s.rests[name] = &rest{name: name, want: d, below: below, lines: ruleset.Lines(below)}
		default:
			continue
		}
		delete(pieces, name)
		if _, had := s.Desired(name); !had && afresh {
			s.Put(name, s.keep(name))
		}
		s.Add(name, there) // or it would be removed, as of no use
	}
	return refused
}

// listed is how many endpoints the longest list of svc has.
func listed(svc sdk.Service) int { return max(len(svc.Cluster), len(svc.Local)) }

func tooMany(n int) error {
	return &sdk.Refusal{
		Field: "endpoints",
		Why:   fmt.Sprintf("%d are more than the %d that this dataplane serves for one port of a Service", n, Ceiling),
		Try:   "several Services, or a trafficDistribution that keeps traffic near",
	}
}

// missing are the chains that d's own lead to and that the kernel does not have so, each
// behind those that it leads to itself; and those that are there. Of what has so few lines
// neither is asked for.
func (s *side) missing(d ruleset.Desired, few int) (below, there []iptables.Chain) {
	if ruleset.Lines(d.Chains) <= few {
		return nil, nil
	}
	for _, c := range d.Chains {
		switch {
		case !isSpare(c.ID):
		case s.Has(c):
			there = append(there, c)
		default:
			below = append(below, c)
		}
	}
	slices.SortStableFunc(below, func(x, y iptables.Chain) int { return cmp.Compare(rank(x), rank(y)) })
	return below, there
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
		return cmp.Or(cmp.Compare(x.lines, y.lines), x.name.Compare(y.name))
	})
}

// bring writes a slice of r, or all that is left when that is little, and reports whether
// r is done: served, or refused by the kernel.
func (s *side) bring(ctx context.Context, r *rest) (done bool, refused []sdk.Failure, err error) {
	if len(r.below) > 0 {
		some := ruleset.Size{Chains: s.slice(), Lines: s.slice()}.Cut(r.below)[0]
		if why, err := s.prepare(ctx, r.name, some); why != nil || err != nil {
			delete(s.rests, r.name)
			if err != nil {
				return true, nil, err
			}
			return true, []sdk.Failure{{Name: r.name, Err: why}}, nil
		}
		r.below = r.below[len(some):]
		return false, nil, nil
	}
	delete(s.rests, r.name)
	refused, err = s.follow(ctx, map[sdk.Name]ruleset.Desired{r.name: r.want})
	return true, refused, err
}

// prepare writes some chains of a Service, to which nothing leads that is not served by
// them already. refused says that the kernel did not take a line; then it has what it had.
func (s *side) prepare(ctx context.Context, name sdk.Name, some []iptables.Chain) (refused, err error) {
	before, _ := s.Desired(name)
	s.Add(name, some)
	_, line, err := s.Attempt(ctx, nil)
	if line == nil {
		return nil, err
	}
	if err := s.Read(ctx); err != nil {
		return nil, err
	}
	_, _, err = s.Attempt(ctx, map[sdk.Name]ruleset.Desired{name: before})
	return line, err
}

// goOn writes a slice of what calls have left, and reports whether there is more.
func (s *side) goOn(ctx context.Context, role sdk.Role) (more bool, err error) {
	s.lead(role)
	if s.Pending() { // chains that are left to be removed
		_, err := s.follow(ctx, nil)
		return err == nil, err
	}
	for _, r := range s.waiting() {
		_, refused, err := s.bring(ctx, r)
		if err == nil && len(refused) > 0 {
			return true, refused[0].Err // it is offered again, and named then
		}
		return err == nil, err
	}
	return false, nil
}

// goOn writes a slice of what calls have left, and reports whether there is more.
func (p *plugin) goOn(ctx context.Context) bool {
	left := false
	for _, s := range p.sides {
		if !s.Known() || !s.Complete() || s.Doubt() != "" {
			continue // first it is read again
		}
		more, err := s.goOn(ctx, p.role)
		if err != nil && ctx.Err() == nil {
			p.log.Warn("cannot write the rest of a large Service", "family", s.Family(), "err", err) // it is offered again
		}
		left = left || more
	}
	if left {
		p.publish()
	}
	return left
}
