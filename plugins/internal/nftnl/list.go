// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// errChanged is the error of a listing during which the rule set changed.
var errChanged = errors.New("the rule set changed while it was listed")

// A Listing reads a table from the kernel.
type Listing struct {
	conn   *Conn
	family Family
	table  string
}

// List returns a Listing of a table.
func (c *Conn) List(family Family, table string) Listing { return Listing{c, family, table} }

// Generation returns the generation of the rule set of all tables. Each batch increments it.
func (c *Conn) Generation(ctx context.Context) (n uint32, err error) {
	err = c.ask(ctx, getGen, ack, 0, nil, func(b []byte) { n = uint32(getUint(attr(b, 1))) }) // NFTA_GEN_ID
	return n, err
}

// An Observed is an object of a table, or the table, as the kernel lists it.
type Observed struct {
	Name    string // of a rule: its chain
	Table   string // of a chain
	Hook    *Hook  // of a base chain
	Drops   bool   // of a base chain: its policy is drop
	Handle  uint64 // of a rule, a chain or the table
	Flags   uint32 // of a set, or of the table
	Owner   uint32 // of the table: the port number of the owner's netlink socket; zero: no owner
	Use     uint32 // of a chain: the number of its rules plus the number of rules and elements that lead to it
	Timeout time.Duration

	key   uint32 // of a set: the types of its keys and data
	data  uint32
	exprs []byte // of a rule
}

// settling is how long a listing is repeated while the rule set changes. Frequent writes may interrupt it many
// times in a row.
const settling = 10 * time.Second

// undisturbed repeats list until the rule set does not change meanwhile.
func undisturbed(ctx context.Context, list func() error) error {
	end := time.Now().Add(settling)
	for pause := time.Duration(0); ; pause = min(pause+100*time.Microsecond, 10*time.Millisecond) {
		err := list()
		if !errors.Is(err, errChanged) || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(pause): // give writers time
		case <-ctx.Done():
			return err
		}
	}
}

// each lists all objects of one kind, and starts again if they change meanwhile.
func (l Listing) each(
	ctx context.Context, kind uint16, begin func(), f func(body []byte), parts ...string,
) error {
	parts = append([]string{text(1, l.table)}, parts...)
	err := undisturbed(ctx, func() error {
		begin()
		return l.conn.ask(ctx, kind, dump, l.family, parts, func(b []byte) {
			if getText(attr(b, 1)) == l.table { // a kernel may list those of other tables, too
				f(b)
			}
		})
	})
	if errors.Is(err, errChanged) {
		return fmt.Errorf("table %s: %w", l.table, err)
	}
	return err
}

// Table returns the table, or nil if it does not exist.
func (l Listing) Table(ctx context.Context) (*Observed, error) {
	var t *Observed
	err := l.conn.ask(ctx, getTable, ack, l.family, []string{text(1, l.table)}, func(b []byte) {
		t = &Observed{Name: getText(attr(b, 1)), Flags: uint32(getUint(attr(b, 2))), Handle: getUint(attr(b, 4)), Owner: uint32(getUint(attr(b, 7)))}
	})
	if errors.Is(err, syscall.ENOENT) {
		return nil, nil
	}
	return t, err
}

// Chains returns the chains of the table by name.
func (l Listing) Chains(ctx context.Context) (all map[string]Observed, err error) {
	err = l.each(ctx, getChain, func() { all = make(map[string]Observed) }, func(b []byte) {
		o := readChain(b)
		all[o.Name] = o
	})
	return all, err
}

func readChain(b []byte) Observed {
	o := Observed{Table: getText(attr(b, 1)), Name: getText(attr(b, 3)), Handle: getUint(attr(b, 2)), Use: uint32(getUint(attr(b, 6)))}
	if hook := attr(b, 4); hook != nil {
		at, priority := getUint(attr(hook, 1)), int32(getUint(attr(hook, 2)))
		o.Hook = &Hook{Type: getText(attr(b, 7)), At: uint32(at), Priority: priority}
		policy := attr(b, 5)
		o.Drops = policy != nil && getUint(policy) == 0 // NF_DROP
	}
	return o
}

// Chains returns the chains of all tables of a family.
func (c *Conn) Chains(ctx context.Context, family Family) (all []Observed, err error) {
	err = undisturbed(ctx, func() error {
		all = nil
		return c.ask(ctx, getChain, dump, family, nil, func(b []byte) { all = append(all, readChain(b)) })
	})
	return all, err
}

// BaseChains returns the base chains of all tables of a family.
func (c *Conn) BaseChains(ctx context.Context, family Family) ([]Observed, error) {
	all, err := c.Chains(ctx, family)
	return slices.DeleteFunc(all, func(o Observed) bool { return o.Hook == nil }), err
}

// Sets returns the sets of the table by name.
func (l Listing) Sets(ctx context.Context) (all map[string]Observed, err error) {
	err = l.each(ctx, getSet, func() { all = make(map[string]Observed) }, func(b []byte) {
		o := Observed{Name: getText(attr(b, 2)), Flags: uint32(getUint(attr(b, 3)))}
		o.key, o.data = uint32(getUint(attr(b, 4))), uint32(getUint(attr(b, 6)))
		o.Timeout = time.Duration(getUint(attr(b, 11))) * time.Millisecond
		all[o.Name] = o
	})
	return all, err
}

// Shape returns the properties of a set that cannot be changed: its flags, the types of its keys and data, and
// its timeout. It equals Set.Shape of the set that was created.
func (o Observed) Shape() string {
	return fmt.Sprintf("%#x %#x %#x %s", o.Flags, o.key, o.data, o.Timeout)
}

// Rules returns the rules in order, by chain: those of one chain, or of all chains if chain is empty.
func (l Listing) Rules(ctx context.Context, chain string) (all map[string][]Observed, err error) {
	var of []string
	if chain != "" {
		of = []string{text(2, chain)}
	}
	err = l.each(ctx, getRule, func() { all = make(map[string][]Observed) }, func(b []byte) {
		o := Observed{Name: getText(attr(b, 2)), Handle: getUint(attr(b, 3)), exprs: slices.Clone(attr(b, 4))}
		all[o.Name] = append(all[o.Name], o)
	}, of...)
	return all, err
}

// Counted returns how many packets the rules of some chains have counted, by the value that reasons has for the
// chain. It ignores chains that do not exist.
func (l Listing) Counted(ctx context.Context, reasons map[string]string) (map[string]uint64, error) {
	all := make(map[string]uint64)
	for chain, reason := range reasons {
		rules, err := l.Rules(ctx, chain)
		if err != nil {
			return nil, err
		}
		for _, r := range rules[chain] {
			for _, e := range r.Exprs() {
				if e.Name() == "counter" {
					all[reason] += e.Num(2) // NFTA_COUNTER_PACKETS
				}
			}
		}
	}
	return all, nil
}

// Elements returns the elements of a set, unordered.
func (l Listing) Elements(ctx context.Context, set string) (all []Element, err error) {
	begin := func() { all = all[:0] }
	err = l.each(ctx, getElem, begin, func(b []byte) {
		eachAttr(attr(b, 3), func(_ uint16, v []byte) { all = append(all, readElement(v)) })
	}, text(2, set))
	return all, err
}

// readElement parses what Batch.Add writes.
func readElement(b []byte) (e Element) {
	eachAttr(b, func(kind uint16, v []byte) {
		switch kind {
		case 1:
			e.Key = string(attr(v, 1))
		case 2:
			e.Data = string(attr(v, 1))
			e.Verdict = readVerdict(attr(v, 2))
		case 3:
			e.End = getUint(v)&1 != 0 // NFT_SET_ELEM_INTERVAL_END
		case 5:
			e.Left = time.Duration(getUint(v)) * time.Millisecond
		case 6:
			if len(v) > 2 && v[0] == 0 && int(v[1]) <= len(v)-2 {
				e.Comment = getText(v[2 : 2+int(v[1])])
			}
		case 10:
			e.KeyEnd = string(attr(v, 1))
		}
	})
	return e
}
