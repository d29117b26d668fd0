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

// ownerTimeout is how long remove waits for the process that owns a table to notice the cleanup and to give the
// table up.
const ownerTimeout = 5 * time.Second

// remove deletes the table called name in this family and reports whether it exists. With dryRun it only looks.
// It uses the socket that owns the table if this process has it.
func (k *nfTable) remove(ctx context.Context, name string, dryRun bool) (bool, error) {
	conn, done, err := k.reader()
	if isUnsupported(err) {
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
	for until := time.Now().Add(ownerTimeout); ; {
		b := nftnl.NewBatch(k.NFT(), name, 0)
		b.DeleteTable()
		err := conn.Send(ctx, b)
		switch {
		case !errors.Is(err, syscall.EPERM):
			return true, err
		case time.Now().After(until) || ctx.Err() != nil:
			return true, withOwner(ctx, list, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// isUnsupported reports whether err says that the kernel has no nf_tables sockets, and so no tables.
func isUnsupported(err error) bool {
	return errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, errors.ErrUnsupported)
}

// probeTable asks the kernel whether it accepts a layout. The batch creates the layout in another table, and
// ends with an operation that always fails, so the kernel undoes all of it.
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
	t.writeLayout(l)
	last := b.Len()
	b.DeleteChain("none")
	err = conn.Send(ctx, b)
	var faults nftnl.Faults
	if !errors.As(err, &faults) {
		return fmt.Errorf("ask the kernel for nf_tables: %w", err)
	}
	return missingFeature(faults, last)
}

// missingFeature returns an error that names what the kernel lacks, given the faults of a batch whose last
// operation always fails. It returns nil if only that one failed.
func missingFeature(faults nftnl.Faults, last int) error {
	for _, f := range faults {
		switch {
		case f.First == 0 && f.Errno == syscall.EOPNOTSUPP: // nfnetlink has no such subsystem
			return errors.New("the kernel has no nf_tables")
		case f.First != last:
			return fmt.Errorf("the kernel lacks a part of nf_tables: %w", faults)
		}
	}
	return nil
}
