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
	piece piece
	below []iptables.Chain // still to be written, each behind those that it leads to
	lines int              // of all that was to be written
}

// left are the lines of what is still to be written.
func (r rest) left() int { return lines(r.below) }

func lines(chains []iptables.Chain) int {
	n := 0
	for _, c := range chains {
		n += 1 + len(c.Rules)
	}
	return n
}

// unfinished is why a heavy Service is not served as an update says.
func (r rest) unfinished() error {
	return fmt.Errorf("%d of the %d lines that it needs are still to be written; that goes on while other Services are served", r.left(), r.lines)
}

// slice is how many lines of heavy Services are written at once. Another call waits for
// so many at most.
func (s *side) slice() int {
	if s.tool.Backend == iptables.NFT {
		return 8000
	}
	return 20_000 // legacy copies the whole table each time
}

// setApart takes out of pieces those that are too big to be written among others, and
// notes them in rests. Those that no node is to have are refused. With afresh the book
// does not know yet what the kernel has of them; that stays.
func (s *side) setApart(pieces map[sdk.Name]piece, state sdk.State, afresh bool) []sdk.Failure {
	var refused []sdk.Failure
	for name, p := range pieces {
		delete(s.rests, name)
		n := listed(state.Services[name])
		below, there := s.book.missing(p, s.slice())
		switch {
		case n > Ceiling && !p.empty():
			refused = append(refused, sdk.Failure{Name: name, Err: tooMany(n)})
			there = nil
		case lines(below) > s.slice():
			s.rests[name] = &rest{name: name, piece: p, below: below, lines: lines(below)}
		default:
			continue
		}
		delete(pieces, name)
		if _, had := s.book.pieces[name]; !had && afresh {
			s.book.pieces[name] = s.book.keep(name)
			s.book.hang(s.book.pieces[name])
			s.book.prepare(name, s.book.pieces[name].chains)
		}
		s.book.prepare(name, there) // or it would be removed, as of no use
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

// missing are the chains that p's own lead to and that the kernel does not have so, each
// behind those that it leads to itself; and those that are there. Of a piece with so few
// lines nobody asks.
func (b *book) missing(p piece, few int) (below, there []iptables.Chain) {
	if lines(p.chains) <= few {
		return nil, nil
	}
	for _, c := range p.chains {
		if !isBelow(c) {
			continue
		}
		if text, ok := b.have[c.ID]; ok && text == iptables.Join(c.Rules) {
			there = append(there, c)
		} else {
			below = append(below, c)
		}
	}
	slices.SortStableFunc(below, func(x, y iptables.Chain) int { return cmp.Compare(rank(x), rank(y)) })
	return below, there
}

// isBelow reports whether c is an endpoint's chain, or a part of a list.
func isBelow(c iptables.Chain) bool { r := rank(c); return r == 1 || r == 2 }

// bringAll writes the heavy Services among names, the smallest first, for as long as
// more says. Those that are not done go on later, and are named.
func (s *side) bringAll(ctx context.Context, names []sdk.Name, jumps []iptables.Jump, more func() bool) ([]sdk.Failure, error) {
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
			if done, refused, err = s.bring(ctx, r, jumps); err != nil {
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
func (s *side) bring(ctx context.Context, r *rest, jumps []iptables.Jump) (done bool, refused []sdk.Failure, err error) {
	if len(r.below) > 0 {
		some := size{chains: s.slice(), lines: s.slice()}.cut(r.below)[0]
		if why, err := s.prepare(ctx, r.name, some, jumps); why != nil || err != nil {
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
	refused, err = s.sync(ctx, map[sdk.Name]piece{r.name: r.piece}, jumps)
	return true, refused, err
}

// prepare writes some chains of a Service, to which nothing leads that is not served by
// them already. refused says that the kernel did not take a line; then it has what it had.
func (s *side) prepare(ctx context.Context, name sdk.Name, some []iptables.Chain, jumps []iptables.Jump) (refused, err error) {
	before := s.book.pieces[name]
	s.book.prepare(name, some)
	line, err := s.attempt(ctx, nil, jumps)
	if line == nil {
		return nil, err
	}
	if _, err := s.read(ctx); err != nil {
		return nil, err
	}
	_, err = s.attempt(ctx, map[sdk.Name]piece{name: before}, jumps)
	return line, err
}

// prepare enters chains of a Service beside those that it has.
func (b *book) prepare(name sdk.Name, some []iptables.Chain) {
	p := b.pieces[name]
	at := make(map[iptables.ID]int, len(p.chains))
	for i, c := range p.chains {
		at[c.ID] = i
	}
	p.chains = slices.Clone(p.chains)
	for _, c := range some {
		if i, has := at[c.ID]; has {
			p.chains[i] = c
		} else {
			p.chains = append(p.chains, c)
		}
		b.write(name, c)
	}
	b.pieces[name] = p
}

// goOn writes a slice of what calls have left, and reports whether there is more.
func (s *side) goOn(ctx context.Context, jumps []iptables.Jump) (more bool, err error) {
	if len(s.book.touched) > 0 { // chains that are left to be removed
		_, err := s.sync(ctx, nil, jumps)
		return err == nil, err
	}
	for _, r := range s.waiting() {
		_, refused, err := s.bring(ctx, r, jumps)
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
		if !s.known || !s.book.whole || s.doubt != "" {
			continue // first it is read again
		}
		more, err := s.goOn(ctx, s.book.leads(p.role))
		if err != nil && ctx.Err() == nil {
			p.log.Warn("cannot write the rest of a large Service", "family", s.book.ground.family, "err", err) // it is offered again
		}
		left = left || more
	}
	if left {
		p.publish()
	}
	return left
}
