// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
)

// standsDown is how long the process that owns a table may take to find that another one has
// cleaned up, and to give the table up.
const standsDown = 5 * time.Second

// remove removes a table of that name of the IP family, if it is there, and reports whether it is: with dryRun it only
// looks. It does so by the socket that owns k, if this process has that.
func (k *nfTable) remove(ctx context.Context, name string, dryRun bool) (bool, error) {
	conn, done, err := k.reader()
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer done()
	list := conn.List(k.NFT(), name)
	found, err := list.Table(ctx)
	if err != nil || found == nil || dryRun {
		return found != nil, err
	}
	for until := time.Now().Add(standsDown); ; {
		b := nftnl.NewBatch(k.NFT(), name, 0)
		b.DeleteTable()
		err := conn.Send(ctx, b)
		switch {
		case !errors.Is(err, syscall.EPERM):
			return true, err
		case time.Now().After(until) || ctx.Err() != nil:
			return true, owned(ctx, list, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// absent reports whether an error says that the kernel can have no tables: it has no sockets for them.
func absent(err error) bool {
	return errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, errors.ErrUnsupported)
}

// probeTable asks the kernel whether it takes sets and chains, in a table that is never there: the last
// operation of the batch is bad, so that nothing of it is done.
func probeTable(ctx context.Context, of ip, l layout) error {
	conn, err := nftnl.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	t := &transaction{batch: nftnl.NewBatch(of.NFT(), table+"-probe", 0)}
	b := t.batch
	b.NewTable(0)
	for k, v := range l.entries() {
		t.changes = append(t.changes, change{Op: reconcile.Add, Key: k, New: v})
	}
	t.makeLayout(l)
	last := b.Len()
	b.DeleteChain("none")
	err = conn.Send(ctx, b)
	var faults nftnl.Faults
	if !errors.As(err, &faults) {
		return fmt.Errorf("ask the kernel for nf_tables: %w", err)
	}
	return lacks(faults, last)
}

// lacks says what the kernel has not, by the faults of a batch whose last operation is bad.
func lacks(faults nftnl.Faults, last int) error {
	for _, f := range faults {
		switch {
		case f.First == 0 && f.Errno == syscall.EOPNOTSUPP: // nfnetlink knows no such subsystem
			return errors.New("the kernel has no nf_tables")
		case f.First != last:
			return fmt.Errorf("the kernel lacks a part of nf_tables: %w", faults)
		}
	}
	return nil
}
