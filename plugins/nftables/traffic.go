// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// Count tells how many connections Services have had, with countConnections: the kernel counts them by
// endpoint. A Service that shares an endpoint with another is left out, for it is not known whose
// connections those are.
func (p *plugin) Count(ctx context.Context, tell func(sdk.Traffic) error) error {
	p.mu.Lock()
	all := slices.Clone(p.families)
	p.mu.Unlock()
	switch {
	case len(all) == 0:
		return errors.New("nothing to count yet: call Configure first")
	case !all[0].options.CountConnections:
		return &sdk.Refusal{Field: "options.countConnections", Why: "it is false, and then nothing counts connections", Try: "true"}
	}
	conn, err := nftnl.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	parts := make(map[sdk.Name]map[string]frame.Count)
	for _, f := range all {
		seen, err := f.Read(ctx, conn)
		if err != nil {
			return err
		}
		counts, err := f.List(conn).Counts(ctx, countedSet(f.ip).Name)
		if err != nil && !errors.Is(err, syscall.ENOENT) { // nothing is written yet
			return err
		}
		f.divide(parts, seen.Services, counts)
	}
	for _, t := range p.traffic.Take(parts, false, time.Now()) {
		if err := tell(t); err != nil {
			return err
		}
	}
	return nil
}

// An endpointKey is an endpoint, as packets are counted by it.
type endpointKey struct {
	protocol sdk.Protocol
	addr     netip.AddrPort
}

// divide adds to each Service what its endpoints have had.
func (f ip) divide(parts map[sdk.Name]map[string]frame.Count, services map[sdk.Name]wanted, counts map[string]uint64) {
	had := make(map[endpointKey]uint64, len(counts))
	for k, n := range counts {
		if protocol, addr, ok := (dump{ip: f}).frontend(index{ip: f}, k); ok {
			had[endpointKey{protocol, addr}] = n
		}
	}
	owner, shared := make(map[endpointKey]sdk.Name), make(map[sdk.Name]bool)
	for name, w := range services {
		for _, list := range w.lists {
			for _, addr := range list {
				at := endpointKey{name.Protocol, addr}
				if other, taken := owner[at]; taken && other != name {
					shared[name], shared[other] = true, true
				}
				owner[at] = name
			}
		}
	}
	for name, w := range services {
		if shared[name] {
			continue
		}
		parts[name] = make(map[string]frame.Count)
		for _, list := range w.lists {
			for _, addr := range list {
				if n := had[endpointKey{name.Protocol, addr}]; n > 0 {
					parts[name][addr.String()] = frame.Count{Connections: n}
				}
			}
		}
	}
}
