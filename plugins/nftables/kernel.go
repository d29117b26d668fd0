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

// mostChanges is how many changes of elements go in together. The kernel's work on a transaction grows faster than its size.
const mostChanges = 10_000

// An nfTable is the table of one IP family. One goroutine at a time may use it, but for read.
type nfTable struct {
	ip
	log     *slog.Logger
	commits *atomic.Uint32 // the batches that this process has written, in all tables: the rule set's generation grows with each
	protect bool           // keep other programs from the table, if the kernel can do that
	foreign func()         // is called when another program has written to some table

	conn   *nftnl.Conn // the writer's, which owns the table; nil: this process is not the writer
	layout layout      // has the sets and chains that batches add

	have   observed                // but for its entries
	fixed  map[entryKey]entryValue // the sets and chains that the kernel has
	counts map[string]int          // how many elements it has, by set

	batches uint32 // of this process, when have.generation was read

	// left has the removed members for which packets may have added clients. The next transaction removes the clients.
	left map[entryKey]bool

	refused, removals int // transactions that did not go in, and those of them that only remove

	recount   recount
	suspect   bool      // another program has written since the elements were read
	compareAt time.Time // when to read them again for that, at the earliest
}

// An observed is what was read of a table.
type observed struct {
	generation uint32 // of the rule set
	there      bool   // the table is
	taken      bool   // this process's socket owns it
	flags      uint32
	entries    map[entryKey]entryValue
}

// list returns what lists the table.
func (k *nfTable) list(conn *nftnl.Conn) nftnl.Listing { return conn.List(k.NFT(), table) }

// hold opens the socket of the writer, which owns the table while it is open, unless the session
// before left one; or closes it, so that the next process can take the table.
func (k *nfTable) hold(writer bool) {
	var err error
	switch {
	case writer && k.conn == nil:
		if k.conn, err = nftnl.Dial(); err != nil {
			k.log.Warn("cannot open the writer's socket", "family", k.Family, "err", err) // every write says so
		}
	case !writer && k.conn != nil:
		if err = k.conn.Close(); err != nil {
			k.log.Warn("cannot close the writer's socket", "family", k.Family, "err", err)
		}
		k.conn = nil
	}
}

// reader returns a socket to read by, and what ends its use.
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

// elements returns what packets left in a set; nothing if the table has no such set.
func (k *nfTable) elements(ctx context.Context, set string) ([]nftnl.Element, error) {
	if _, there := k.fixed[entryKey{kind: ofSet, name: set}]; !there {
		return nil, nil
	}
	conn, done, err := k.reader()
	if err != nil {
		return nil, err
	}
	defer done()
	return k.list(conn).Elements(ctx, set)
}

// add adds elements to a set, as packets would.
func (k *nfTable) add(ctx context.Context, set string, elements []nftnl.Element) error {
	if k.conn == nil && len(elements) > 0 {
		return errors.New("another process is the writer")
	}
	for some := range slices.Chunk(elements, mostChanges) {
		b := nftnl.NewBatch(k.NFT(), table, 0)
		for _, e := range some {
			b.Add(set, e)
		}
		if err := k.send(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// send sends a batch by the writer's socket.
func (k *nfTable) send(ctx context.Context, b *nftnl.Batch) error {
	if err := k.conn.Send(ctx, b); err != nil {
		return err
	}
	k.commits.Add(1)
	return nil
}

// read reads the table by conn, which is used by no other call meanwhile. It may be called beside
// other calls.
func (k *nfTable) read(ctx context.Context, conn *nftnl.Conn) (o observed, err error) {
	o.entries = make(map[entryKey]entryValue)
	list := k.list(conn)
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
			continue // its elements come from packets
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

// readRole returns the role that the table shows, and notes whether there is a table. It reads no elements.
func (k *nfTable) readRole(ctx context.Context) (sdk.Role, error) {
	conn, done, err := k.reader()
	if err != nil {
		return 0, err
	}
	defer done()
	list := k.list(conn)
	found, err := list.Table(ctx)
	if err != nil {
		return 0, err
	}
	if k.have.there = found != nil; found == nil {
		return sdk.Standby, nil
	}
	chains, err := list.Chains(ctx)
	return shown(func(chain string) bool {
		_, there := chains[chain]
		return there
	}), err
}

// readLayout adds the sets and chains of a table to entries, and returns the sets.
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
	k.fixed, k.counts = make(map[entryKey]entryValue), make(map[string]int)
	for key, v := range o.entries {
		if key.kind == ofElement {
			k.counts[key.name]++
		} else {
			k.fixed[key] = v
		}
	}
	entries := o.entries
	o.entries = nil
	k.left = make(map[entryKey]bool)
	err = k.eachClient(ctx, func(_ change, member entryKey) {
		if _, there := entries[member]; !there { // a process ended between two transactions
			k.left[member] = true
		}
	})
	if err != nil {
		return nil, err
	}
	k.have, k.batches = o, k.commits.Load()
	k.suspect, k.compareAt = false, time.Now().Add(max(recountEvery, 200*time.Since(began)))
	return entries, nil
}

// Has asks the kernel for one element.
func (k *nfTable) Has(ctx context.Context, key entryKey, v entryValue) (bool, error) {
	conn, done, err := k.reader()
	if err != nil {
		return false, err
	}
	defer done()
	return k.list(conn).Has(ctx, key.name, key.element(v))
}

// total returns how many elements all sets have, but for those that packets fill.
func (k *nfTable) total() (n int) {
	for _, count := range k.counts {
		n += count
	}
	return n
}

// Apply writes a batch, after it has made the table this process's own.
func (k *nfTable) Apply(ctx context.Context, b reconcile.Batch[entryKey, entryValue]) (refused map[entryKey]error, err error) {
	if k.conn == nil {
		return nil, errors.New("this process has no socket to write by")
	}
	if k.have.there && !k.have.taken && k.have.flags&nftnl.Persist != 0 {
		// A transaction of its own: the kernel takes no base chain in one that changes the owner.
		if refused, err := k.write(ctx, &transaction{take: true}); err != nil || refused != nil {
			return refused, err
		}
	}
	written := false
	for i := range max(len(b.Phases), theRest+1) {
		t := &transaction{rebuild: b.Rebuild}
		if i < len(b.Phases) {
			t.changes = b.Phases[i]
		}
		if i == theRest && len(k.left) > 0 && !b.Rebuild { // else the clients go with the table
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

// write writes one transaction. Of entries that it cannot have because others are there than was known, it returns
// an error, too.
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
			k.written(t)
			return nil, nil
		case errors.As(err, &faults) && k.unprotected(t, faults):
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
			return nil, fmt.Errorf("table %s %s is %w", k.word(), table, owned(ctx, k.list(k.conn), err))
		}
		return t.blame(faults)
	}
}

// unprotected has the table be made without an owner, where the kernel has none that persist.
func (k *nfTable) unprotected(t *transaction, faults nftnl.Faults) bool {
	refused := errors.Is(faults, syscall.EOPNOTSUPP) || errors.Is(faults, syscall.EINVAL)
	if k.have.there || !k.protect || !refused || faults[0].First != 0 {
		return false
	}
	k.log.Info("the kernel cannot protect the table from other programs", "family", k.Family)
	k.protect = false
	return true
}

// written notes what the kernel has now.
func (k *nfTable) written(t *transaction) {
	if t.rebuild || !k.have.there || t.take {
		k.have.flags = k.flags(t)
		k.have.taken = k.have.flags&nftnl.Owner != 0
	}
	if t.rebuild {
		clear(k.fixed)
		clear(k.counts)
	}
	k.have.there = true
	for _, c := range t.changes {
		switch {
		case c.Key.kind != ofElement && c.Op != reconcile.Remove:
			k.fixed[c.Key] = c.New
		case c.Key.kind != ofElement:
			delete(k.fixed, c.Key)
		case c.Op == reconcile.Add:
			k.counts[c.Key.name]++
		case c.Op == reconcile.Remove:
			k.counts[c.Key.name]--
			if k.Kind(c.Key).Remove == membersGo {
				k.left[c.Key] = true
			}
		}
	}
	for name := range k.counts {
		if _, there := k.fixed[entryKey{kind: ofSet, name: name}]; !there {
			delete(k.counts, name)
		}
	}
}

// owned says which process keeps a table from being written, as the kernel has it: by the
// number of its socket, which of its first one is that of the process; and what ends it.
func owned(ctx context.Context, list nftnl.Listing, err error) error {
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
