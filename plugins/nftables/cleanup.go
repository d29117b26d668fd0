// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
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
				errs = append(errs, fmt.Errorf("remove table %s %s: %w", ip{of}.word(), name, err))
				if !l.DryRun {
					errs = append(errs, holder(env.Dir))
				}
			} else if there {
				gone = append(gone, fmt.Sprintf("nft: remove table %s %s", ip{of}.word(), name))
			}
		}
	}
	p.mu.Lock()
	for _, f := range p.families {
		if !l.DryRun {
			f.marks.stop()
		}
	}
	p.mu.Unlock()
	left, err := leaveMarks(ctx, l, env)
	return slices.Concat(gone, left, given), errors.Join(append(errs, err)...)
}

// word is how nft calls the family.
func (f ip) word() string { return pick(f, "ip", "ip6") }

// remove removes one table, if it is there: by the socket that owns it, if this process has that.
func (p *plugin) remove(ctx context.Context, of sdk.Family, name string, dryRun bool) (bool, error) {
	f := newFamily(of, options{}, new(commits), new(marks), frame.Env{})
	p.mu.Lock()
	for _, open := range p.families {
		if open.Family == of {
			f = open
		}
	}
	p.mu.Unlock()
	conn, done, err := f.reader()
	if errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, errors.ErrUnsupported) {
		return false, nil // without netfilter's sockets the kernel has no tables
	}
	if err != nil {
		return false, err
	}
	defer done()
	found, err := conn.List(f.nft(), name).Table(ctx)
	if err != nil || found == nil || dryRun {
		return found != nil, err
	}
	for until := time.Now().Add(standsDown); ; {
		b := nftnl.NewBatch(f.nft(), name, 0)
		b.DeleteTable()
		err := conn.Send(ctx, b)
		switch {
		case !errors.Is(err, syscall.EPERM):
			return true, err
		case time.Now().After(until) || ctx.Err() != nil:
			return true, owned(ctx, conn.List(f.nft(), name), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// standsDown is how long the process that owns a table may take to find that another one has
// cleaned up, and to give the table up.
const standsDown = 5 * time.Second

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
