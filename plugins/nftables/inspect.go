// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// Inspect reports what the kernel's tables serve. It does not use what this process remembers.
func (p *plugin) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	return p.each(func(f *family, conn *nftnl.Conn) error {
		seen, err := f.kernel.read(ctx, conn)
		if err != nil {
			return err
		}
		return frame.TellServed(ctx, served(f.ip, seen.entries), tell)
	})
}

// each calls call with each family and a socket for reading. It may run while other calls run.
func (p *plugin) each(call func(*family, *nftnl.Conn) error) error {
	p.mu.Lock()
	all := slices.Clone(p.families)
	p.mu.Unlock()
	if len(all) == 0 {
		return errors.New("nothing to read yet: call Configure first")
	}
	conn, err := nftnl.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, f := range all {
		if err := call(f, conn); err != nil {
			return err
		}
	}
	return nil
}

// served returns the frontends that a table serves, each with the endpoints that its own elements lead to:
// elements of the Service's other frontends may exist while these are missing.
func served(of ip, entries map[entryKey]entryValue) (all []sdk.Served) {
	lacks := func(set, key string) bool {
		_, there := entries[elementKey(set, key)]
		return !there
	}
	services, _ := of.Parse(entries)
	for name, w := range services {
		for _, f := range w.frontends {
			s := sdk.Served{Name: name, Frontend: sdk.Frontend{Kind: f.kind, Addr: f.addr, Policy: f.policy}}
			p, k, list := indexOf(name.Family, f), frontendKey(name.Protocol, f.addr), w.lists[f.policy]
			if w.served && !lacks(p.name(classSet(classOf(len(list)))), k) {
				for i, ep := range list {
					if !lacks(p.name("endpoints"), slotKey(k, i)) {
						s.Endpoints = append(s.Endpoints, ep)
					}
				}
				slices.SortFunc(s.Endpoints, netip.AddrPort.Compare)
			}
			all = append(all, s)
		}
	}
	return all
}

// Watch reports what rules do with packets.
func (p *plugin) Watch(ctx context.Context, packet sdk.Packet, tell func(sdk.WatchedPacket) error) error {
	return hooks.Watch(ctx, packet, table, reasons, tell)
}

// Trace evaluates the node's rules for a packet and reports which of them match.
func (p *plugin) Trace(ctx context.Context, packet sdk.Packet) (sdk.Traced, error) {
	return hooks.Trace(ctx, packet, "")
}
