// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
)

type change = reconcile.Change[entryKey, entryValue]

// A transaction is a set of changes that the kernel makes completely or not at all.
type transaction struct {
	take    bool // take the ownership of the table
	rebuild bool // delete the table first
	changes []change
	clients []change // elements added by packets, to remove with the changes

	batch *nftnl.Batch
	keys  []entryKey // the entry of each operation; the zero key for operations on the table
}

// flags returns the flags of the table: those it was created with, or those with which t creates it.
func (k *nfTable) flags(t *transaction) uint32 {
	protected := k.protect
	if k.have.there && !t.rebuild {
		protected = k.have.flags&nftnl.Persist != 0
	}
	if protected {
		return nftnl.Owner | nftnl.Persist
	}
	return 0
}

// build encodes the transaction. The order is: table, sets and chains, elements, and last the removal of chains
// and sets, because no rule refers to them any more.
func (t *transaction) build(k *nfTable) {
	b := nftnl.NewBatch(k.NFT(), table)
	t.batch, t.keys = b, nil
	b.Grow(len(t.changes))
	if t.rebuild {
		b.DeleteTable()
	}
	if t.rebuild || t.take || !k.have.there && len(t.changes) > 0 {
		b.NewTable(k.flags(t))
	}
	t.assignKeys(entryKey{})
	removed := t.writeLayout(k.layout)
	t.writeElements(removed)
	for _, c := range t.changes {
		if c.Key.kind == ofChain && c.Op == reconcile.Remove {
			b.DeleteChain(c.Key.name)
			t.assignKeys(c.Key)
		}
	}
	for _, c := range t.changes {
		if c.Key.kind == ofSet && c.Op == reconcile.Remove {
			b.DeleteSet(c.Key.name)
			t.assignKeys(c.Key)
		}
	}
}

// assignKeys records that the operations added since the last call belong to entry k.
func (t *transaction) assignKeys(k entryKey) {
	for len(t.keys) < t.batch.Len() {
		t.keys = append(t.keys, k)
	}
}

// writeLayout creates sets and chains, writes the rules of chains, and returns the names of the sets that t
// removes. It flushes changed chains first, because their rules may jump to a chain that t deletes.
func (t *transaction) writeLayout(l layout) (removed map[string]bool) {
	removed = make(map[string]bool)
	b := t.batch
	for _, c := range t.changes {
		switch {
		case c.Key.kind == ofSet && c.Op == reconcile.Remove:
			removed[c.Key.name] = true
		case c.Key.kind == ofSet:
			b.NewSet(l.sets[c.Key.name])
		case c.Key.kind == ofChain && c.Op != reconcile.Add:
			b.FlushChain(c.Key.name)
			if c.Op == reconcile.Replace && c.Old.note != c.New.note {
				b.DeleteChain(c.Key.name)
			}
		}
		t.assignKeys(c.Key)
	}
	var filled []chain
	for _, c := range t.changes {
		if c.Key.kind != ofChain || c.Op == reconcile.Remove {
			continue
		}
		made := l.chains[c.Key.name]
		if c.Op == reconcile.Add || c.Old.note != c.New.note {
			b.NewChain(made.Name, made.Hook)
		}
		filled = append(filled, made)
		t.assignKeys(c.Key)
	}
	for _, c := range filled {
		for _, r := range c.Rules {
			b.NewRule(c.Name, r...)
		}
		t.assignKeys(entryKey{kind: ofChain, name: c.Name})
	}
	return removed
}

// writeElements removes and adds elements. Elements of the sets in removed go with their set.
func (t *transaction) writeElements(removed map[string]bool) {
	for _, c := range t.changes {
		if c.Key.kind == ofElement && c.Op != reconcile.Add && !removed[c.Key.name] {
			t.batch.Remove(c.Key.name, c.Key.element(c.Old))
			t.assignKeys(c.Key)
		}
	}
	// A client may time out before the kernel handles its removal, which would then fail. So each client is
	// added first: that changes nothing if it still exists.
	for _, do := range []func(string, nftnl.Element){t.batch.Add, t.batch.Remove} {
		for _, c := range t.clients {
			do(c.Key.name, c.Key.element(c.Old))
			t.assignKeys(c.Key)
		}
	}
	for _, c := range t.changes {
		if c.Key.kind == ofElement && c.Op != reconcile.Remove {
			t.batch.Add(c.Key.name, c.Key.element(c.New))
			t.assignKeys(c.Key)
		}
	}
}

// blame returns the reason for each entry that the kernel refused. It also returns an error if a fault shows
// that the table has other entries than this process knows.
func (t *transaction) blame(faults nftnl.Faults) (map[entryKey]error, error) {
	refused := make(map[entryKey]error)
	err := fmt.Errorf("write table %s: %w", table, faults)
	stale := false
	for _, f := range faults {
		if f.First != f.Last || t.keys[f.First].kind != ofElement {
			return nil, err
		}
		refused[t.keys[f.First]] = nftnl.Faults{f}
		stale = stale || slices.Contains([]syscall.Errno{syscall.EEXIST, syscall.ENOENT, syscall.EBUSY}, f.Errno)
	}
	if stale {
		return refused, err
	}
	return refused, nil
}

// eachClient calls f with each client that packets have added to the table, and with the member that let them.
func (k *nfTable) eachClient(ctx context.Context, f func(client change, member entryKey)) error {
	for _, p := range both {
		set := forPolicy("sticky", p)
		clients, err := k.elements(ctx, set)
		if err != nil {
			return err
		}
		for _, e := range clients {
			client := change{Op: reconcile.Remove, Key: elementKey(set, e.Key), Old: entryValue{data: e.Data}}
			f(client, elementKey(forPolicy("members", p), parseNumber(e.Key).key()+destination(k.ReadDestination(e.Data))))
		}
	}
	return nil
}
