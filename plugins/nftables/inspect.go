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

// Inspect tells what the kernel's tables serve, and nothing else.
func (p *plugin) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	return p.each(func(f *family, conn *nftnl.Conn) error {
		seen, err := f.kernel.read(ctx, conn)
		if err != nil {
			return err
		}
		return frame.TellServed(ctx, served(f.ip, seen.entries), tell)
	})
}

// each calls call with each family and a socket to read by, beside other calls.
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

// served returns the frontends that a table serves, each by the endpoints that its own elements lead to: those of
// the Service's other frontends may be there while these are not.
func served(of ip, entries map[entryKey]entryValue) (all []sdk.Served) {
	lacks := func(set, key string) bool {
		_, there := entries[elementKey(set, key)]
		return !there
	}
	services, _ := of.Parse(entries)
	for name, w := range services {
		for _, f := range w.frontends {
			s := sdk.Served{Name: name, Frontend: sdk.Frontend{Kind: f.kind, Addr: f.addr, Policy: f.policy}}
			p, k, list := at(name.Family, f), frontendKey(name.Protocol, f.addr), w.lists[f.policy]
			if w.served && !lacks(p.of(ofClass(class(len(list)))), k) {
				for i, ep := range list {
					if !lacks(p.of("endpoints"), slotKey(k, i)) {
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

// Watch tells what rules do with packets.
func (p *plugin) Watch(ctx context.Context, packet sdk.Packet, tell func(sdk.WatchedPacket) error) error {
	return hooks.Watch(ctx, packet, table, reasons, tell)
}

// Trace walks a packet through the rules of the node.
func (p *plugin) Trace(ctx context.Context, packet sdk.Packet) (sdk.Traced, error) {
	return hooks.Trace(ctx, packet, "")
}
