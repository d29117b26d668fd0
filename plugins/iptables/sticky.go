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

// recentDir has a file for each list of xt_recent.
const recentDir = "/proc/net/xt_recent"

// ExportAffinity reports the clients that the kernel remembers. xt_recent shows the last packet of a client in
// jiffies and not the length of a jiffy, so each client is reported with its full timeout.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	return p.eachList(ctx, func(svc sdk.Service, ep netip.AddrPort, file string) error {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // no rule uses the list yet
		}
		if err != nil {
			return fmt.Errorf("read the clients of endpoint %s: %w", ep, err)
		}
		for line := range strings.Lines(string(text)) {
			client, ok := parseRecent(line)
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

// ImportAffinity adds clients to the xt_recent lists of the rules that exist.
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
				return fmt.Errorf("set client %s to endpoint %s: %w", client, ep, err)
			}
		}
		return nil
	})
}

// eachList calls f with the xt_recent file of each endpoint of Services with affinity.
func (p *plugin) eachList(ctx context.Context, f func(sdk.Service, netip.AddrPort, string) error) error {
	return p.Do(ctx, func(services map[sdk.Name]sdk.Service) error {
		for _, svc := range services {
			if svc.Affinity <= 0 {
				continue
			}
			for _, ep := range svc.Reachable() {
				if err := errors.Join(ctx.Err(), f(svc, ep.Addr, filepath.Join(recentDir, endpointChain(svc.Name, ep.Addr)))); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// parseRecent returns the client of a line of an xt_recent file: "src=10.0.0.9 ttl: 64 last_seen: 4294906217
// oldest_pkt: 1 4294906217".
func parseRecent(line string) (netip.Addr, bool) {
	word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	text, ok := strings.CutPrefix(word, "src=")
	addr, err := netip.ParseAddr(text)
	return addr, ok && err == nil
}
