// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/sdk"
)

// mostChanges is the maximum number of element changes in one transaction. The kernel's work grows faster than
// the transaction.
const mostChanges = 10_000

// An nfTable is the table of one IP family. Only one goroutine at a time may use it, except for read.
type nfTable struct {
	ip
	log     *slog.Logger
	commits *atomic.Uint32 // number of batches that this process has written to all tables; each one increments the rule set's generation
	protect bool           // create the table with an owner, if the kernel can (Linux 6.9)
	foreign func()         // called when another program has written to any table

	conn   *nftnl.Conn // the writer's socket, which owns the table; nil: this process is not the writer
	layout layout      // definitions of the sets and chains that batches create

	have  observed                // without its entries
	fixed map[entryKey]entryValue // sets and chains in the kernel
	total int                     // number of elements in the kernel, without those that packets add

	batches uint32 // the value of commits when have.generation was read

	// left has the removed members for which packets may have added clients. The next transaction removes these
	// clients.
	left map[entryKey]bool

	refused, removals int // transactions that failed, and how many of these only removed entries

	suspect   bool      // another program may have changed elements since they were read
	compareAt time.Time // the earliest time to read all elements for that reason
}

// compareEvery is the minimum interval between two readings of all elements because another program may have changed
// some. They take at most a twentieth of the time.
const compareEvery = 3 * time.Second

// An observed is the content of a table as it was read.
type observed struct {
	generation uint32 // of the rule set
	there      bool   // the table exists
	taken      bool   // this process's socket owns the table
	flags      uint32
	entries    map[entryKey]entryValue
}

// listing returns a Listing of the table.
func (k *nfTable) listing(conn *nftnl.Conn) nftnl.Listing { return conn.List(k.NFT(), table) }

// hold opens the writer's socket, which owns the table while it is open, unless the previous session left one.
// If writer is false it closes the socket, so that the next process can own the table.
func (k *nfTable) hold(writer bool) {
	var err error
	switch {
	case writer && k.conn == nil:
		if k.conn, err = nftnl.Dial(); err != nil {
			k.log.Warn("cannot open the writer's socket", "family", k.Family, "err", err) // every write fails with an error that says so
		}
	case !writer && k.conn != nil:
		if err = k.conn.Close(); err != nil {
			k.log.Warn("cannot close the writer's socket", "family", k.Family, "err", err)
		}
		k.conn = nil
	}
}

// reader returns a socket for reading, and a function to release it.
func (k *nfTable) reader() (*nftnl.Conn, func(), error) {
	if k.conn != nil {
		return k.conn, func() {}, nil
	}
	conn, err := nftnl.Dial()
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close() }, nil
}

// elements returns the elements that packets have added to a set, and none if the table has no such set.
func (k *nfTable) elements(ctx context.Context, set string) ([]nftnl.Element, error) {
	if _, there := k.fixed[entryKey{kind: ofSet, name: set}]; !there {
		return nil, nil
	}
	conn, done, err := k.reader()
	if err != nil {
		return nil, err
	}
	defer done()
	return k.listing(conn).Elements(ctx, set)
}

// add adds elements to a set to which packets also add.
func (k *nfTable) add(ctx context.Context, set string, elements []nftnl.Element) error {
	if k.conn == nil && len(elements) > 0 {
		return errors.New("another process is the writer")
	}
	for some := range slices.Chunk(elements, mostChanges) {
		b := nftnl.NewBatch(k.NFT(), table)
		for _, e := range some {
			b.Add(set, e)
		}
		if err := k.send(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// send writes a batch on the writer's socket.
func (k *nfTable) send(ctx context.Context, b *nftnl.Batch) error {
	if err := k.conn.Send(ctx, b); err != nil {
		return err
	}
	k.commits.Add(1)
	return nil
}

// read reads the table on conn, which no other call may use meanwhile. It may run while other calls run.
func (k *nfTable) read(ctx context.Context, conn *nftnl.Conn) (o observed, err error) {
	o.entries = make(map[entryKey]entryValue)
	list := k.listing(conn)
	if o.generation, err = conn.Generation(ctx); err != nil {
		return o, err
	}
	found, err := list.Table(ctx)
	if err != nil || found == nil {
		return o, err
	}
	o.there, o.flags = true, found.Flags
	sets, err := readLayout(ctx, list, o.entries)
	if err != nil {
		return o, err
	}
	for name, s := range sets {
		if s.Timeout > 0 {
			continue // packets add its elements
		}
		elements, err := list.Elements(ctx, name)
		if err != nil {
			return o, err
		}
		for _, e := range elements {
			o.entries[entryKey{ofElement, name, e.Key, e.KeyEnd}] = entryValue{e.Data, e.Comment}
		}
	}
	return o, nil
}

// readRole returns the role that the base chains show, and records whether the table exists. It reads no elements.
func (k *nfTable) readRole(ctx context.Context) (sdk.Role, error) {
	conn, done, err := k.reader()
	if err != nil {
		return 0, err
	}
	defer done()
	list := k.listing(conn)
	found, err := list.Table(ctx)
	if err != nil {
		return 0, err
	}
	if k.have.there = found != nil; found == nil {
		return sdk.Standby, nil
	}
	chains, err := list.Chains(ctx)
	return shownRole(func(chain string) bool {
		_, there := chains[chain]
		return there
	}), err
}

// readLayout adds the sets and chains of the table to entries, and returns the sets.
func readLayout(ctx context.Context, list nftnl.Listing, entries map[entryKey]entryValue) (map[string]nftnl.Observed, error) {
	chains, err := list.Chains(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := list.Rules(ctx, "")
	if err != nil {
		return nil, err
	}
	for name, c := range chains {
		var all []rule
		for _, r := range rules[name] {
			all = append(all, r.Exprs())
		}
		entries[entryKey{kind: ofChain, name: name}] = chainValue(c.Hook, all)
	}
	sets, err := list.Sets(ctx)
	if err != nil {
		return nil, err
	}
	for name, s := range sets {
		entries[entryKey{kind: ofSet, name: name}] = entryValue{data: s.Shape()}
	}
	return sets, nil
}

// List reads the table.
func (k *nfTable) List(ctx context.Context) (map[entryKey]entryValue, error) {
	began := time.Now()
	conn, done, err := k.reader()
	if err != nil {
		return nil, err
	}
	defer done()
	o, err := k.read(ctx, conn)
	if err != nil {
		return nil, err
	}
	k.fixed = make(map[entryKey]entryValue)
	for key, v := range o.entries {
		if key.kind != ofElement {
			k.fixed[key] = v
		}
	}
	k.total = len(o.entries) - len(k.fixed)
	entries := o.entries
	o.entries = nil
	k.left = make(map[entryKey]bool)
	err = k.eachClient(ctx, func(_ change, member entryKey) {
		if _, there := entries[member]; !there { // a process ended after it removed the member and before it removed its clients
			k.left[member] = true
		}
	})
	if err != nil {
		return nil, err
	}
	k.have, k.batches = o, k.commits.Load()
	k.suspect, k.compareAt = false, time.Now().Add(max(compareEvery, 20*time.Since(began)))
	return entries, nil
}

// Apply writes a batch. If the table can have an owner and this process is not it, it first takes the
// ownership.
func (k *nfTable) Apply(ctx context.Context, b reconcile.Batch[entryKey, entryValue]) (refused map[entryKey]error, err error) {
	if k.conn == nil {
		return nil, errors.New("this process is not the writer, or could not open the writer's socket")
	}
	if k.have.there && !k.have.taken && k.have.flags&nftnl.Persist != 0 {
		// The kernel creates no base chain in a transaction that changes the owner, so this is one of its own.
		if refused, err := k.write(ctx, &transaction{take: true}); err != nil || refused != nil {
			return refused, err
		}
	}
	written := false
	for i := range max(len(b.Phases), changeRest+1) {
		t := &transaction{rebuild: b.Rebuild}
		if i < len(b.Phases) {
			t.changes = b.Phases[i]
		}
		if i == changeRest && len(k.left) > 0 && !b.Rebuild { // a rebuild removes the clients with the table
			err := k.eachClient(ctx, func(client change, member entryKey) {
				if k.left[member] {
					t.clients = append(t.clients, client)
				}
			})
			if err != nil {
				return nil, err
			}
		}
		if len(t.changes)+len(t.clients) == 0 {
			continue
		}
		refused, err := k.write(ctx, t)
		if err == nil && refused != nil && written {
			err = fmt.Errorf("write table %s: refused after a part was written", table)
		}
		if err != nil || refused != nil {
			return refused, err
		}
		written = true
	}
	clear(k.left)
	return nil, nil
}

// write writes one transaction. If entries were refused because the table has others than this process knows,
// it returns the entries and an error.
func (k *nfTable) write(ctx context.Context, t *transaction) (refused map[entryKey]error, err error) {
	for {
		t.build(k)
		if t.batch.Len() == 0 {
			return nil, nil
		}
		err := k.send(ctx, t.batch)
		var faults nftnl.Faults
		switch {
		case err == nil:
			k.recordWrite(t)
			return nil, nil
		case errors.As(err, &faults) && k.disableProtection(t, faults):
			continue
		}
		k.refused++
		if !slices.ContainsFunc(t.changes, func(c change) bool { return c.Op != reconcile.Remove }) {
			k.removals++
		}
		switch {
		case faults == nil:
			return nil, err
		case errors.Is(err, syscall.EPERM):
			return nil, fmt.Errorf("table %s %s is %w", k.nftName(), table, withOwner(ctx, k.listing(k.conn), err))
		}
		return t.blame(faults)
	}
}

// disableProtection gives up ownership if the kernel refused to create the table with a persistent owner. It
// reports whether write should try again.
func (k *nfTable) disableProtection(t *transaction, faults nftnl.Faults) bool {
	refused := errors.Is(faults, syscall.EOPNOTSUPP) || errors.Is(faults, syscall.EINVAL)
	if k.have.there || !k.protect || !refused || faults[0].First != 0 {
		return false
	}
	k.log.Info("table protection disabled: the kernel has no persistent owners", "family", k.Family)
	k.protect = false
	return true
}

// recordWrite updates the known state of the table after transaction t.
func (k *nfTable) recordWrite(t *transaction) {
	if t.rebuild || !k.have.there || t.take {
		k.have.flags = k.flags(t)
		k.have.taken = k.have.flags&nftnl.Owner != 0
	}
	if t.rebuild {
		clear(k.fixed)
		k.total = 0
	}
	k.have.there = true
	for _, c := range t.changes {
		switch {
		case c.Key.kind != ofElement && c.Op != reconcile.Remove:
			k.fixed[c.Key] = c.New
		case c.Key.kind != ofElement:
			delete(k.fixed, c.Key)
		case c.Op == reconcile.Add:
			k.total++
		case c.Op == reconcile.Remove:
			k.total--
			if k.Kind(c.Key).Remove == removeMembers {
				k.left[c.Key] = true
			}
		}
	}
}

// withOwner adds to err which process owns the table. The kernel gives the owner as the number of a netlink socket.
// The first socket of a process usually has the process ID as its number.
func withOwner(ctx context.Context, list nftnl.Listing, err error) error {
	t, unread := list.Table(ctx)
	if unread != nil || t == nil || t.Owner == 0 {
		return err
	}
	name, hidden := os.ReadFile(fmt.Sprintf("/proc/%d/comm", t.Owner))
	if hidden != nil {
		return fmt.Errorf("owned by the socket with number %d of /proc/net/netlink: %w", t.Owner, err)
	}
	program := strings.TrimSpace(string(name))
	return fmt.Errorf("owned by process %d (%s): %w; try: kill -9 %[1]d", t.Owner, program, err)
}
