// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// A Wanted is what one Service comes to; the zero P is nothing. P is the type itself.
type Wanted[P any] interface {
	// Empty reports whether it is nothing.
	Empty() bool

	// Equal reports whether two have the same elements.
	Equal(P) bool

	// Elements are all that it needs, for the Service of that name. No two are in one Place.
	Elements(sdk.Name) []Element
}

// A Layout is what a dataplane has in its table.
type Layout[P any] interface {
	Reader[P]

	// Sets and Chains are those that there should be.
	Sets() []nftnl.Set
	Chains() []Chain

	// Grow has Sets and Chains be enough for a Wanted, and reports whether they were not.
	Grow(P) bool

	// Fixed are the elements of no Service.
	Fixed() []Element

	// Arrange is desired, as it is reached from have with the fewest changes.
	Arrange(have, desired P) P

	// Frontend returns the frontend that an element catches; ok is false for an element that catches none.
	Frontend(Element) (protocol sdk.Protocol, at netip.AddrPort, ok bool)

	// Left are elements that packets left in the table, and that no packet may find when these
	// changes are made: each is of one of them, by its place there. Only changes that remove
	// Admitting elements need to be looked at.
	Left(context.Context, nftnl.Listing, []*Change[P]) ([]Leaving, error)
}

// A Reader is what a dataplane understands of a table. It may be asked by several at once.
type Reader[P any] interface {
	// Use is what the elements of a set are for.
	Use(set string) Use

	// May are all sets that there may be, in a table that has sets of these names.
	May(names iter.Seq[string]) []nftnl.Set

	// Services are those that elements serve. What it makes of damaged ones is of no matter: the
	// elements of each Wanted are compared with those that are there.
	Services(Dump) map[sdk.Name]P
}

// A Leaving is an element that goes with a change.
type Leaving struct {
	Change int
	Element
}

// A Dump is the elements of all sets but those that packets fill: by set, and by Key with KeyEnd.
type Dump map[string]map[string]nftnl.Element

// Commits counts the batches that this process has written, in all tables: the rule set's generation
// grows with each.
type Commits struct{ n atomic.Uint32 }

// Count is how many those are.
func (c *Commits) Count() uint32 { return c.n.Load() }

// A Table is one table, as it should be and as the kernel has it. One call at a time may use it,
// but Read, which may be called beside others.
type Table[P Wanted[P]] struct {
	Name    string
	Of      sdk.Family
	Layout  Layout[P]
	Commits *Commits
	Log     *slog.Logger
	Protect bool   // whether other programs are to be kept from the table, where the kernel can do that
	Foreign func() // is called when another program has written to some table
	Applied func() // is called when a plan was applied

	Conn *nftnl.Conn // the writer's, which owns the table; nil: this process is not the writer
	Have Observed[P]

	desired map[sdk.Name]P
	touched map[sdk.Name]bool // Services of which desired may differ from Have
	all     bool              // all of them
	shaped  bool              // the layout may differ, too

	// Refused counts transactions that did not go in, and Removals those of them that only remove.
	Refused, Removals int

	Recount Recount

	suspect   bool      // another program has written since the elements were read
	compareAt time.Time // when to read them again for that, at the earliest
}

// nft is the table's family.
func (t *Table[P]) nft() nftnl.Family { return familyOf(t.Of) }

func familyOf(f sdk.Family) nftnl.Family { return IP{f}.NFT() }

// Word is how nft calls an IP family.
func Word(f sdk.Family) string { return Pick(f, "ip", "ip6") }

// List lists the table.
func (t *Table[P]) List(conn *nftnl.Conn) nftnl.Listing { return conn.List(t.nft(), t.Name) }

// Hold opens the socket of the writer, which owns the table while it is open, unless the session
// before left one; or closes it, so that the next process can take the table.
func (t *Table[P]) Hold(writer bool) {
	if !writer {
		t.letGo()
		return
	}
	t.shaped = true // the table is to be taken
	if t.Conn != nil {
		return
	}
	var err error
	if t.Conn, err = nftnl.Dial(); err != nil {
		t.Log.Warn("cannot open the writer's socket", "family", t.Of, "err", err) // every write says so
	}
}

// letGo closes the socket of the writer.
func (t *Table[P]) letGo() {
	if t.Conn == nil {
		return
	}
	if err := t.Conn.Close(); err != nil {
		t.Log.Warn("cannot close the writer's socket", "family", t.Of, "err", err)
	}
	t.Conn = nil
}

// Succeed takes over the socket of the writer from the session before. Closed and opened again it
// would leave the table without an owner, and so open to other programs, for that time.
func (t *Table[P]) Succeed(before *Table[P]) { t.Conn, before.Conn = before.Conn, nil }

// Reader is a socket to read by, and what ends its use.
func (t *Table[P]) Reader() (*nftnl.Conn, func(), error) {
	if t.Conn != nil {
		return t.Conn, func() {}, nil
	}
	conn, err := nftnl.Dial()
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close() }, nil
}

// Elements are those that packets left in a set; none if the table has no such set.
func (t *Table[P]) Elements(ctx context.Context, set string) ([]nftnl.Element, error) {
	if !t.Have.Sets[set] {
		return nil, nil
	}
	conn, done, err := t.Reader()
	if err != nil {
		return nil, err
	}
	defer done()
	return t.List(conn).Elements(ctx, set)
}

// Add adds elements to a set, as packets would.
func (t *Table[P]) Add(ctx context.Context, set string, elements []nftnl.Element) error {
	if t.Conn == nil && len(elements) > 0 {
		return errors.New("another process is the writer")
	}
	for some := range slices.Chunk(elements, Chunk) {
		b := nftnl.NewBatch(t.nft(), t.Name, 0)
		for _, e := range some {
			b.Add(set, e)
		}
		if err := t.Write(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// Write sends a batch that is no part of a plan.
func (t *Table[P]) Write(ctx context.Context, b *nftnl.Batch) error {
	if err := t.Conn.Send(ctx, b); err != nil {
		return err
	}
	t.Commits.n.Add(1)
	return nil
}

// Reshape has the next plan compare the layout.
func (t *Table[P]) Reshape() { t.shaped = true }

// Adopt reads the table. The next plan compares everything.
func (t *Table[P]) Adopt(ctx context.Context) error {
	began := time.Now()
	conn, done, err := t.Reader()
	if err != nil {
		return err
	}
	defer done()
	if t.Have, err = t.Read(ctx, conn); err != nil {
		return err
	}
	t.Have.batches = t.Commits.Count()
	t.all, t.shaped = true, true
	t.suspect, t.compareAt = false, time.Now().Add(max(recountEvery, 200*time.Since(began)))
	return nil
}

// Pieces are what Services come to, as it was put.
func (t *Table[P]) Pieces() map[sdk.Name]P { return t.desired }

// Keep is what the kernel has of a Service.
func (t *Table[P]) Keep(name sdk.Name) P { return t.Have.Services[name] }

// Put says what Services come to.
func (t *Table[P]) Put(all map[sdk.Name]P) {
	if len(t.desired) == 0 {
		t.desired = make(map[sdk.Name]P, len(all))
	}
	if len(t.touched) == 0 {
		t.touched = make(map[sdk.Name]bool, len(all))
	}
	for name, w := range all {
		if t.touched[name] = true; w.Empty() {
			delete(t.desired, name)
		} else {
			t.desired[name] = w
		}
	}
}

// due are the names of Services that are to be looked at.
func (t *Table[P]) due() iter.Seq[sdk.Name] {
	if !t.all {
		return maps.Keys(t.touched)
	}
	return func(yield func(sdk.Name) bool) {
		for name := range t.desired {
			if !yield(name) {
				return
			}
		}
		for name := range t.Have.Services {
			if _, also := t.desired[name]; !also && !yield(name) {
				return
			}
		}
	}
}
