// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// A side is one family: its book, and the programs that make the kernel follow it.
type side struct {
	tool iptables.Tool
	book *book

	// known says that book.have and book.jumps are what the kernel has, as far as
	// we did it. After an error nobody knows, and the next call reads it again.
	known bool

	// planned says that the book does not know by what the kernel serves, because it only
	// planned while another process was the writer.
	planned bool

	asRead *iptables.Stamp // of the tables, when they were last read; nil: written to since

	rests map[sdk.Name]*rest // heavy Services that are still to be written

	counts bool // rules can count in accounts,
	asked  bool // and that will not change

	doubt   string           // why the kernel may not have what the book says; empty: it has
	sizes   map[string]sized // of legacy's tables
	agenda  []iptables.Jump  // what is still to be audited
	audited time.Time        // when the last thing was
	count   counts
	rounds  *conntrack.Rounds // of forgetting UDP flows

	masq *masquerade.Hold // nil: this only cleans up
}

func newSide(tool iptables.Tool) *side {
	return &side{tool: tool, book: newBook(tool.Family), rests: make(map[sdk.Name]*rest), sizes: make(map[string]sized), audited: time.Now(), count: newCounts(), rounds: conntrack.NewRounds(tool.Family)}
}

// atOnce is how many chains go into one piece, and how many pieces one program is handed:
// so many that starting it costs nothing beside, and so few that it is seen to get on.
//
// nft takes a time that grows with the square of the chains: 10,000 Services cost 1.1 s
// of a processor by 500 chains at a time, 3.6 s by 4,000, and 7.7 s at once. legacy
// copies the whole table for each piece, so it takes all in one.
//
// nft's program also keeps the chains that rules of a piece lead to in a list, which it
// searches from the beginning for each rule: 20,000 rules, to a chain each, take it 8 s in
// one piece.
//
// And the kernel checks, with each piece that adds a rule, every way through the rules that
// are there: 0.1 s among 100,000. So where there are many the pieces are fewer: then a
// change of 600 of 3,000 Services with ten endpoints costs 1.8 s of a processor, and 2.4 s
// by the small ones.
func (s *side) atOnce() (each size, pieces int) {
	switch {
	case s.tool.Backend != iptables.NFT:
		return size{math.MaxInt, math.MaxInt}, 1
	case s.book.rules["nat"] > muchThere:
		return size{chains: 1500, lines: 6000}, 8
	}
	return size{chains: 500, lines: 2000}, 16
}

// muchThere is so many rules that to check them all costs more than larger pieces do.
const muchThere = 20_000

// read takes the kernel's tables into the book, and says which role they show.
func (s *side) read(ctx context.Context) (sdk.Role, error) {
	s.known = false
	s.asRead = nil
	if s.masq != nil {
		s.masq.Doubt()
	}
	stamp, unstamped := s.tool.Stamp("nat", "filter")
	tables, err := s.tool.SaveIf(ctx, func(id iptables.ID) bool { return isOurs(id.Chain) }, "nat", "filter")
	if err != nil {
		return 0, fmt.Errorf("read %s tables: %w", s.book.ground.family, err)
	}
	if s.counts && s.tool.Hold != nil {
		if err := openAccounts(); err != nil { // without rules, somebody may have removed them
			return 0, err
		}
	}
	s.known = true
	if unstamped == nil {
		s.asRead = &stamp
	}
	return s.book.adopt(tables), nil
}

// justRead reports whether the book has what the kernel has, as far as the kernel tells
// without another reading: nobody wrote since the last one.
func (s *side) justRead() bool {
	if !s.known || s.asRead == nil {
		return false
	}
	now, err := s.tool.Stamp("nat", "filter")
	return err == nil && now == *s.asRead
}

// settled notes that the kernel says what the book says, but for chains that are left to
// be removed.
func (s *side) settled() {
	s.book.settled()
	s.doubt = ""
	s.measure()
}

// sync makes the tables say what pieces need, with jumps in place. A Service whose
// rules the kernel does not take keeps its old ones, and is named; the others go
// in without it.
func (s *side) sync(ctx context.Context, pieces map[sdk.Name]piece, jumps []iptables.Jump) ([]sdk.Failure, error) {
	names := slices.SortedFunc(maps.Keys(pieces), sdk.Name.Compare)
	refused, err := iptables.Sift(names, func(names []sdk.Name) ([]sdk.Name, error) {
		some := pieces
		if len(names) < len(pieces) {
			some = make(map[sdk.Name]piece, len(names))
			for _, name := range names {
				some[name] = pieces[name]
			}
		}
		return s.try(ctx, some, jumps)
	})
	s.planned = s.planned && err != nil
	var failed []sdk.Failure
	for name, err := range refused {
		failed = append(failed, sdk.Failure{Name: name, Err: err})
	}
	return failed, err
}

// try is sync for all of pieces or none. When a line is refused it names the
// Services to which that may belong.
func (s *side) try(ctx context.Context, pieces map[sdk.Name]piece, jumps []iptables.Jump) (suspects []sdk.Name, err error) {
	before := make(map[sdk.Name]piece, len(pieces))
	for name := range pieces {
		before[name] = s.book.pieces[name]
	}
	refused, err := s.attempt(ctx, pieces, jumps)
	if refused == nil {
		return nil, err
	}
	// Perhaps somebody else took away what the line needs. It is read afresh now.
	if again, err := s.attempt(ctx, nil, jumps); again == nil {
		return nil, err
	}
	suspects = s.suspects(refused, pieces)
	if _, err := s.read(ctx); err != nil {
		return nil, err
	}
	s.book.put(before)
	if s.planned && len(pieces) == 1 {
		suspects = slices.Collect(maps.Keys(pieces))
	}
	if s.planned {
		s.book.put(s.asServed(suspects))
	}
	return suspects, refused
}

// asServed are the pieces by which the kernel serves these Services now.
func (s *side) asServed(names []sdk.Name) map[sdk.Name]piece {
	pieces := make(map[sdk.Name]piece, len(names))
	for _, name := range names {
		pieces[name] = s.book.keep(name)
	}
	return pieces
}

// attempt writes what differs, once. A line that was not taken is told apart from
// everything else that may go wrong.
func (s *side) attempt(ctx context.Context, pieces map[sdk.Name]piece, jumps []iptables.Jump) (refused *iptables.LineError, err error) {
	if !s.known {
		if _, err := s.read(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.share(ctx); err != nil {
		return nil, err
	}
	p := s.book.plan(s.book.put(pieces), jumps)
	err = s.write(ctx, p)
	if err == nil {
		s.settled()
		return nil, nil
	}
	s.known = false
	s.count.failed(len(s.book.touched) < len(s.book.should))
	if ctx.Err() == nil && errors.As(err, &refused) {
		return refused, nil
	}
	return nil, err
}

// share has the chains that all dataplanes share be there, once it is known what the node is
// like: our rules lead to them.
func (s *side) share(ctx context.Context) error {
	if s.masq == nil || !s.book.whole {
		return nil
	}
	_, err := s.masq.Ensure(ctx, s.book.ground.node.MasqueradeBit)
	return err
}

// suspects are the Services that a refused line may belong to: the one whose
// chain or entry it is. None: nobody can tell.
func (s *side) suspects(refused *iptables.LineError, pieces map[sdk.Name]piece) []sdk.Name {
	if owner := s.book.should[refused.Chain].name; owner != (sdk.Name{}) {
		if _, changing := pieces[owner]; changing {
			return []sdk.Name{owner}
		}
	}
	for name, p := range pieces {
		for _, e := range p.entries {
			t := s.book.trees[e.in]
			if t.Root().Table == refused.Chain.Table && strings.HasSuffix(refused.Line, " "+string(t.Line(e.Entry))) {
				return []sdk.Name{name}
			}
		}
	}
	return nil
}

// write carries out p, in pieces if it is big. Many pieces go in by one program: each
// takes effect by itself.
func (s *side) write(ctx context.Context, p plan) error {
	if len(p) > 0 {
		s.asRead = nil
	}
	s.count.write(p)
	each, pieces := s.atOnce()
	for some := range slices.Chunk(p.pieces(each), pieces) {
		joint := slices.Concat(some...)
		if err := s.tool.Restore(ctx, joint.script(s.tool.Backend)); err != nil {
			return err
		}
		s.book.done(joint)
		if s.tool.Heard != nil {
			s.tool.Heard()
		}
	}
	return nil
}
