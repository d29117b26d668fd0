// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// A side is one family: its book, and the programs that make the kernel follow it.
type side struct {
	tool iptables.Tool
	book *book

	// known says that book.have and book.jumps are what the kernel has. After an
	// error nobody knows, and the next call reads it again.
	known bool
}

// atOnce is how many chains go into one restore. nft takes a time that grows with
// their square; legacy copies the whole table each time, so it takes them all.
func (s *side) atOnce() int {
	if s.tool.Backend == iptables.NFT {
		return 4000
	}
	return 1 << 30
}

// read takes the kernel's tables into the book, and says which role they show.
func (s *side) read(ctx context.Context) (sdk.Role, error) {
	tables, err := s.tool.Save(ctx, "nat", "filter")
	if err != nil {
		return 0, fmt.Errorf("read %s tables: %w", s.book.ground.family, err)
	}
	s.known = true
	return s.book.adopt(tables), nil
}

// sync makes the tables say what pieces need, with jumps in place. A Service whose
// rules the kernel does not take keeps its old ones, and is named; the others go
// in without it.
func (s *side) sync(ctx context.Context, pieces map[sdk.Name]piece, jumps []jump) ([]sdk.Failure, error) {
	before := make(map[sdk.Name]piece, len(pieces))
	for name := range pieces {
		before[name] = s.book.pieces[name]
	}
	err := s.write(ctx, s.book.plan(s.book.put(pieces), jumps))
	if err == nil {
		clear(s.book.touched)
		return nil, nil
	}
	s.known = false
	var refused *iptables.LineError
	if ctx.Err() != nil || len(pieces) == 0 || !errors.As(err, &refused) {
		return nil, err
	}
	bad := s.suspects(refused, pieces)
	if _, err := s.read(ctx); err != nil {
		return nil, err
	}
	s.book.put(before)
	if len(pieces) == 1 {
		_, again := s.sync(ctx, nil, jumps)
		return []sdk.Failure{{Name: bad[0], Err: err}}, again
	}
	return s.apart(ctx, pieces, bad, jumps)
}

// apart syncs those of pieces that are not suspect, and then the suspects, in
// halves until the guilty stand alone.
func (s *side) apart(ctx context.Context, pieces map[sdk.Name]piece, suspects []sdk.Name, jumps []jump) ([]sdk.Failure, error) {
	rest := maps.Clone(pieces)
	bad := make(map[sdk.Name]piece)
	if len(suspects) == len(pieces) {
		suspects = suspects[:len(suspects)/2]
	}
	for _, name := range suspects {
		bad[name] = pieces[name]
		delete(rest, name)
	}
	failed, err := s.sync(ctx, rest, jumps)
	if err != nil {
		return failed, err
	}
	more, err := s.sync(ctx, bad, jumps)
	return append(failed, more...), err
}

// suspects are the Services that a refused line may belong to: the one whose
// chain or entry it is, or all that are being changed.
func (s *side) suspects(refused *iptables.LineError, pieces map[sdk.Name]piece) []sdk.Name {
	if owner := s.book.should[refused.Chain].name; owner != (sdk.Name{}) {
		if _, changing := pieces[owner]; changing {
			return []sdk.Name{owner}
		}
	}
	for name, p := range pieces {
		for _, e := range p.entries {
			t := s.book.trees[e.tree]
			if t.root.Table == refused.Chain.Table && strings.HasSuffix(refused.Line, " "+string(t.line(e))) {
				return []sdk.Name{name}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(pieces), sdk.Name.Compare)
}

// write carries out p, in pieces if it is big.
func (s *side) write(ctx context.Context, p plan) error {
	for _, part := range p.pieces(s.atOnce()) {
		if err := s.tool.Restore(ctx, part.script()); err != nil {
			return err
		}
		s.book.done(part)
	}
	return nil
}
