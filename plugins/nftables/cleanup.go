// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/nftable"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// kubeProxy is the name of the tables that kube-proxy has in its nftables mode.
const kubeProxy = "kube-proxy"

// sweep removes both tables, and gives the kernel's parameters back: those first, since the
// guard has to stand while the kernel routes 127.0.0.0/8.
func (p *plugin) sweep(ctx context.Context, l sdk.Leftovers, env frame.Env) ([]string, error) {
	given, err := env.GiveBack(l)
	errs := []error{err}
	var gone []string
	tables := []string{table}
	if l.KubeProxy {
		tables = append(tables, kubeProxy)
	}
	for _, of := range families {
		for _, name := range tables {
			there, err := p.remove(ctx, of, name, l.DryRun)
			if err != nil {
				errs = append(errs, fmt.Errorf("remove table %s %s: %w", nftable.Word(of), name, err))
				if !l.DryRun {
					errs = append(errs, holder(env.Dir))
				}
			} else if there {
				gone = append(gone, fmt.Sprintf("nft: remove table %s %s", nftable.Word(of), name))
			}
		}
	}
	p.mu.Lock()
	for _, f := range p.families {
		if !l.DryRun {
			f.marks.Stop()
		}
	}
	p.mu.Unlock()
	left, err := masquerade.LeaveAll(ctx, env.Dir, mode, l)
	return slices.Concat(gone, left, given), errors.Join(append(errs, err)...)
}

// remove removes one table, if it is there: by the socket that owns it, if this process has that.
func (p *plugin) remove(ctx context.Context, of sdk.Family, name string, dryRun bool) (bool, error) {
	open := new(nftable.Table[wanted])
	p.mu.Lock()
	for _, f := range p.families {
		if f.Family == of {
			open = f.Table
		}
	}
	p.mu.Unlock()
	conn, done, err := open.Reader()
	if nftable.Absent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer done()
	return nftable.Remove(ctx, conn, of, name, dryRun)
}

// holder says which process keeps a table from being removed, as far as the ledger knows.
func holder(dir string) error {
	shared, err := ledger.Open(dir)
	if err != nil {
		return err
	}
	lock, err := shared.TryLock(mode)
	if err != nil {
		return err
	}
	return lock.Unlock()
}
