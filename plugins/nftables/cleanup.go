// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
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
			} else if there {
				gone = append(gone, fmt.Sprintf("nft: remove table %s %s", ip{of}.word(), name))
			}
		}
	}
	return append(gone, given...), errors.Join(errs...)
}

// word is how nft calls the family.
func (f ip) word() string { return pick(f, "ip", "ip6") }

// remove removes one table, if it is there: by the socket that owns it, if this process has that.
func (p *plugin) remove(ctx context.Context, of sdk.Family, name string, dryRun bool) (bool, error) {
	f := newFamily(of, options{}, new(commits), nil)
	p.mu.Lock()
	for _, open := range p.families {
		if open.Family == of {
			f = open
		}
	}
	p.mu.Unlock()
	conn, done, err := f.reader()
	if err != nil {
		return false, nil // there are no tables where there are no sockets
	}
	defer done()
	found, err := conn.List(f.nft(), name).Table(ctx)
	if err != nil || found == nil || dryRun {
		return found != nil, err
	}
	b := nftnl.NewBatch(f.nft(), name, 0)
	b.DeleteTable()
	return true, conn.Send(ctx, b)
}
