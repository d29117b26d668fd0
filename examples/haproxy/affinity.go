// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// HAProxy keeps clients in a table of each section, in memory: a table ends with its instance. So what
// an instance has is read before the next one starts, and that one begins with it in two ways. A map,
// which its configuration names, has each client's server from the first connection on. And once it
// serves, the table gets an entry for each, and the map is emptied: the table alone follows the
// connections.
//
// An entry that is written by the runtime API begins with the whole time. Until the client calls, the
// plugin knows better when it ends, and removes it then.

// clients are affinity entries that HAProxy was given, or is to be given.
type clients map[sdk.Name]map[netip.Addr]keeps

// A keeps is which endpoint a client keeps, and for how long if it does not call.
type keeps struct {
	endpoint netip.AddrPort
	until    time.Time
}

func (c clients) put(n sdk.Name, client netip.Addr, k keeps) {
	if c[n] == nil {
		c[n] = make(map[netip.Addr]keeps)
	}
	if _, ok := c[n][client]; ok || len(c[n]) < tableSize {
		c[n][client] = k
	}
}

// inForce returns what HAProxy's tables have now, and what was imported while none ran.
func (p *plugin) inForce(ctx context.Context) (clients, error) {
	now := time.Now()
	all := make(clients)
	if p.current == nil || p.current.ended() {
		for n, some := range p.affinity {
			for addr, k := range some {
				if k.until.After(now) {
					all.put(n, addr, k)
				}
			}
		}
		return all, nil
	}
	for n, r := range p.have {
		if r.Affinity == 0 {
			continue
		}
		servers, err := p.current.api().servers(ctx, sectionName(n))
		if err != nil {
			return nil, err
		}
		at := make(map[int]netip.AddrPort)
		for _, s := range servers[sectionName(n)] {
			at[s.id] = s.at
		}
		table, err := p.current.api().clients(ctx, n)
		if err != nil {
			return nil, err
		}
		for _, c := range table {
			k := keeps{at[c.server], now.Add(c.left)}
			if given, ok := p.affinity[n][c.addr]; ok && !c.called && given.endpoint == k.endpoint {
				k.until = given.until
			}
			if k.endpoint.IsValid() && k.until.After(now) {
				all.put(n, c.addr, k)
			}
		}
	}
	return all, nil
}

// carry returns which clients the next instance is to know, and writes the maps that it begins with.
func (p *plugin) carry(ctx context.Context, next *instance) (clients, map[sdk.Name]string, error) {
	all, err := p.inForce(ctx)
	if err != nil {
		return nil, nil, err
	}
	files := make(map[sdk.Name]string)
	for n, some := range all {
		s, ok := p.wanted[n]
		if !ok || s.Affinity == 0 {
			delete(all, n)
			continue
		}
		name := "clients-" + sectionName(n)
		err := next.write(name, func(w io.Writer) error {
			for addr, k := range some {
				if _, err := fmt.Fprintln(w, addr, serverName(k.endpoint)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		files[n] = next.file(name)
	}
	p.affinity = all
	return all, files, nil
}

// remember writes clients into the tables of an instance that serves, and empties its maps.
func (i *instance) remember(ctx context.Context, all clients, files map[sdk.Name]string) error {
	var commands []string
	for n, some := range all {
		more, err := i.entries(ctx, n, some)
		if err != nil {
			return err
		}
		commands = append(commands, more...)
	}
	for _, file := range files {
		commands = append(commands, "clear map "+file)
	}
	_, err := i.api().ask(ctx, commands...)
	return err
}

// entries returns the commands that write clients of one Service. A client whose endpoint is gone has
// none.
func (i *instance) entries(ctx context.Context, n sdk.Name, some map[netip.Addr]keeps) (commands []string, err error) {
	section := sectionName(n)
	servers, err := i.api().servers(ctx, section)
	if err != nil {
		return nil, err
	}
	id := make(map[netip.AddrPort]int)
	for _, s := range servers[section] {
		id[s.at] = s.id
	}
	for addr, k := range some {
		if id[k.endpoint] > 0 {
			commands = append(commands, fmt.Sprintf("set table %s key %s data.server_id %d", section, addr, id[k.endpoint]))
		}
	}
	return commands, nil
}

// expired returns the commands that remove clients that have not called within their time, and forgets
// those clients.
func (c clients) expired(ctx context.Context, i *instance, now time.Time) (commands []string) {
	for n, some := range c {
		var over []netip.Addr
		for addr, k := range some {
			if !k.until.After(now) {
				over = append(over, addr)
			}
		}
		if len(over) == 0 {
			continue
		}
		table, err := i.api().clients(ctx, n)
		if err != nil {
			continue // it is asked again
		}
		called := make(map[netip.Addr]bool)
		for _, client := range table {
			called[client.addr] = client.called
		}
		for _, addr := range over {
			if given, there := called[addr]; there && !given {
				commands = append(commands, fmt.Sprintf("clear table %s key %s", sectionName(n), addr))
			}
			delete(some, addr)
		}
	}
	return commands
}

// ExportAffinity names which client keeps which endpoint.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	err := p.look(ctx)
	var all clients
	if err == nil {
		all, err = p.inForce(ctx)
	}
	p.leave()
	if err != nil {
		return err
	}
	for n, some := range all {
		for addr, k := range some {
			if err := tell(sdk.AffinityEntry{Name: n, Client: addr, Endpoint: k.endpoint, Left: time.Until(k.until)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// ImportAffinity has clients of another dataplane keep their endpoints.
func (p *plugin) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	defer p.leave()
	now := time.Now()
	given := make(clients)
	for _, e := range entries {
		given.put(e.Name, e.Client, keeps{e.Endpoint, now.Add(e.Left)})
		p.affinity.put(e.Name, e.Client, keeps{e.Endpoint, now.Add(e.Left)})
	}
	if p.lock == nil || p.current == nil || p.current.ended() {
		return nil // they are there when an instance starts
	}
	for n := range given {
		if p.have[n].Affinity == 0 {
			delete(given, n)
		}
	}
	return p.current.remember(ctx, given, nil)
}
