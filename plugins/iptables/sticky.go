// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// memory is where the kernel shows the clients that it remembers, a file for each list.
const memory = "/proc/net/xt_recent"

// ExportAffinity tells which callers the kernel remembers. It says when each called last in
// ticks of a length that is told nowhere, so each is told as if it had just called.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	return p.eachList(ctx, func(svc sdk.Service, ep netip.AddrPort, file string) error {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // there are no rules with it yet
		}
		if err != nil {
			return fmt.Errorf("read which clients keep to %s: %w", ep, err)
		}
		for line := range strings.Lines(string(text)) {
			client, ok := remembered(line)
			if !ok {
				continue
			}
			if err := tell(sdk.AffinityEntry{Name: svc.Name, Client: client, Endpoint: ep, Left: svc.Affinity}); err != nil {
				return err
			}
		}
		return nil
	})
}

// ImportAffinity has the kernel remember callers, in the lists of the rules that are there.
func (p *plugin) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	type end struct {
		name sdk.Name
		at   netip.AddrPort
	}
	callers := make(map[end][]netip.Addr)
	for _, s := range entries {
		e := end{s.Name, s.Endpoint}
		callers[e] = append(callers[e], s.Client)
	}
	return p.eachList(ctx, func(svc sdk.Service, ep netip.AddrPort, file string) error {
		for _, client := range callers[end{svc.Name, ep}] {
			err := os.WriteFile(file, []byte("+"+client.String()), 0)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("keep %s at %s: %w", client, ep, err)
			}
		}
		return nil
	})
}

// eachList calls f for the list of each endpoint that callers keep to.
func (p *plugin) eachList(ctx context.Context, f func(sdk.Service, netip.AddrPort, string) error) error {
	return p.Do(ctx, func(services map[sdk.Name]sdk.Service) error {
		for _, svc := range services {
			if svc.Affinity <= 0 {
				continue
			}
			for _, ep := range svc.Reachable() {
				if err := errors.Join(ctx.Err(), f(svc, ep.Addr, filepath.Join(memory, endpointChain(svc.Name, ep.Addr)))); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// remembered is the caller that a line of a list is about:
// "src=10.0.0.9 ttl: 64 last_seen: 4294906217 oldest_pkt: 1 4294906217".
func remembered(line string) (netip.Addr, bool) {
	word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	text, ok := strings.CutPrefix(word, "src=")
	addr, err := netip.ParseAddr(text)
	return addr, ok && err == nil
}
