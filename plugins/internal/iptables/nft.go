// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// This file queries nf_tables, in the network namespace of the calling thread.

// nftFamilies has nf_tables' numbers of the families.
var nftFamilies = map[sdk.Family]nftnl.Family{sdk.IPv4: nftnl.IPv4, sdk.IPv6: nftnl.IPv6}

// withNFT calls ask with a socket that is closed afterwards.
func withNFT(ctx context.Context, ask func(context.Context, *nftnl.Conn) error) error {
	conn, err := nftnl.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	return ask(ctx, conn)
}

// withNFTSoon is withNFT for queries that the kernel answers at once. The limit is for busy machines.
func withNFTSoon(ask func(context.Context, *nftnl.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return withNFT(ctx, ask)
}

// Generation returns the generation of at most three tables. For legacy it creates tables that do not exist.
func (t Tool) Generation(tables ...string) (s Generation, err error) {
	switch t.Backend {
	case NFT:
		s.generation, err = generation()
		return s, err
	case Legacy:
	default:
		return s, errors.ErrUnsupported // of a test
	}
	for i, table := range tables {
		if s.sizes[i], err = TableSize(t.Family, table); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Foreign returns a Generation that differs from the last one if another process has changed tables. For nft it
// leaves out the commits that Commits has counted. A commit in progress counts as foreign until it is done. For
// legacy it also differs if this process has changed the size of a table.
func (t Tool) Foreign(tables ...string) (s Generation, err error) {
	var own uint32
	if t.Backend == NFT {
		own = t.Commits.n.Load() // read first: a commit in between then counts as foreign, not a foreign one as ours
	}
	s, err = t.Generation(tables...)
	s.generation -= own
	return s, err
}

// Uses returns, for each chain of nf_tables in the family, the number of its rules plus the number of rules
// that lead to it.
func (t Tool) Uses(ctx context.Context) (map[ID]uint32, error) {
	uses := make(map[ID]uint32)
	err := withNFT(ctx, func(ctx context.Context, conn *nftnl.Conn) error {
		chains, err := conn.Chains(ctx, nftFamilies[t.Family])
		for _, c := range chains {
			uses[ID{c.Table, c.Name}] = c.Use
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the chains of nf_tables: %w", err)
	}
	return uses, nil
}

// Counted returns how many packets reached the rules of some chains of filter, by the value that reasons has
// for the chain.
func (t Tool) Counted(ctx context.Context, reasons map[string]string) (all map[string]uint64, err error) {
	switch {
	case t.Backend == NFT:
		err = withNFT(ctx, func(ctx context.Context, conn *nftnl.Conn) error {
			all, err = conn.List(nftFamilies[t.Family], "filter").Counted(ctx, reasons)
			return err
		})
		return all, err
	case t.Backend == Legacy && slices.Contains(legacyTables(t.Family), "filter"): // asking for a table would create it
		all = make(map[string]uint64)
		err = eachEntry(t.Family, "filter", func(e entry) {
			if reason := reasons[e.chain]; reason != "" {
				all[reason] += e.packets
			}
		})
	}
	return all, err
}

// generation returns the generation of the nf_tables rule set.
func generation() (n uint32, err error) {
	err = withNFTSoon(func(ctx context.Context, conn *nftnl.Conn) error {
		n, err = conn.Generation(ctx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read the generation of nf_tables: %w", err)
	}
	return n, nil
}

// lacksNFT reports whether the kernel has no nf_tables for family, although the programs may be installed. The
// kernel tells only when a table is created. So lacksNFT sends that in a batch that always fails, which changes
// nothing.
func lacksNFT(family sdk.Family) bool {
	err := withNFTSoon(func(ctx context.Context, conn *nftnl.Conn) error {
		b := nftnl.NewBatch(nftFamilies[family], "pointsman-probe")
		b.NewTable(0)
		b.DeleteChain("none")
		return conn.Send(ctx, b)
	})
	return errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, errors.ErrUnsupported) // other errors have other causes
}

// SweepKubeProxy removes the tables of kube-proxy's nftables mode. With dryRun it only names them. None of our
// dataplanes has such tables, so the cleanup of any dataplane may remove them: the host does not ask
// the dataplane that serves for a cleanup.
func SweepKubeProxy(ctx context.Context, dryRun bool) (gone []string, err error) {
	const name = "kube-proxy"
	err = withNFT(ctx, func(ctx context.Context, conn *nftnl.Conn) error {
		for i, family := range []nftnl.Family{nftnl.IPv4, nftnl.IPv6} {
			described := fmt.Sprintf("table %s %s", []string{"ip", "ip6"}[i], name)
			table, err := conn.List(family, name).Table(ctx)
			switch {
			case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.EINVAL):
				continue // the kernel has no tables of the family
			case err != nil:
				return fmt.Errorf("look for nft's %s: %w", described, err)
			case table == nil:
				continue
			}
			b := nftnl.NewBatch(family, name)
			b.DeleteTable()
			if !dryRun {
				if err := conn.Send(ctx, b); err != nil && !errors.Is(err, syscall.ENOENT) {
					return fmt.Errorf("delete nft's %s: %w", described, err)
				}
			}
			gone = append(gone, "nft: remove "+described)
		}
		return nil
	})
	if errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, errors.ErrUnsupported) {
		return nil, nil // the kernel has no nf_tables
	}
	return gone, err
}
