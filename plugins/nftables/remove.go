// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
)

// remove deletes the table and reports whether it exists. With dryRun it only looks. It uses the socket that owns
// the table if this process has it. A process that releases the writer's lock has closed its socket before.
func (k *nfTable) remove(ctx context.Context, dryRun bool) (bool, error) {
	conn, done, err := k.reader()
	if isUnsupported(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer done()
	found, err := k.listing(conn).Table(ctx)
	if err != nil || found == nil || dryRun {
		return found != nil, err
	}
	b := nftnl.NewBatch(k.NFT(), table)
	b.DeleteTable()
	if err = conn.Send(ctx, b); errors.Is(err, syscall.EPERM) {
		err = withOwner(ctx, k.listing(conn), err)
	}
	return true, err
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
	t := &transaction{batch: nftnl.NewBatch(of.NFT(), table+"-probe")}
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
		case f.First == 0 && f.Errno == syscall.EPERM:
			return errors.New("the kernel forbids this process to use nf_tables: it needs the capability NET_ADMIN")
		case f.First != last:
			return fmt.Errorf("the kernel lacks a part of nf_tables: %w", faults)
		}
	}
	return nil
}
