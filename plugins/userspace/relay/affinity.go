// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// MaxAffinity bounds the clients of one Service that keep an endpoint. Beyond it, one is
// forgotten for each that comes.
const MaxAffinity = 1 << 16

// An affinity says which endpoint each client of one Service keeps.
type affinity struct {
	mu      sync.Mutex // guards all below
	entries map[netip.Addr]entry
	expired int // how many were left when they were last expired
}

// An entry is the endpoint that a client keeps.
type entry struct {
	endpoint netip.AddrPort
	until    time.Time
}

// pick returns the endpoint that the client keeps, if it fits, else the next. The client
// keeps it for so long from now.
func (a *affinity) pick(client netip.Addr, now time.Time, keep time.Duration, fits func(netip.AddrPort) bool, next func() netip.AddrPort) netip.AddrPort {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, kept := a.entries[client]
	if !kept || !now.Before(e.until) || !fits(e.endpoint) {
		e.endpoint = next()
	}
	e.until = now.Add(keep)
	a.put(client, e, now)
	return e.endpoint
}

// set remembers e for a client.
func (a *affinity) set(client netip.Addr, e entry, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(client, e, now)
}

// put is set, with mu held.
func (a *affinity) put(client netip.Addr, e entry, now time.Time) {
	if a.entries == nil {
		a.entries = make(map[netip.Addr]entry)
	}
	if _, kept := a.entries[client]; !kept {
		a.makeRoom(now)
	}
	a.entries[client] = e
}

// makeRoom expires entries when there are twice as many as were left the last time, so
// that expiring costs each client little. Close to the bound, only the regular call of
// expire does it. The caller holds mu.
func (a *affinity) makeRoom(now time.Time) {
	if len(a.entries) >= 2*a.expired+64 {
		a.expireLocked(now)
	}
	for client := range a.entries {
		if len(a.entries) < MaxAffinity {
			return
		}
		delete(a.entries, client)
	}
}

// expire forgets the clients whose time is over.
func (a *affinity) expire(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expireLocked(now)
}

func (a *affinity) expireLocked(now time.Time) {
	a.forget(func(e entry) bool { return !now.Before(e.until) })
	a.expired = len(a.entries)
}

// keep forgets the clients whose endpoint does not fit.
func (a *affinity) keep(fits func(netip.AddrPort) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(func(e entry) bool { return !fits(e.endpoint) })
}

func (a *affinity) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entries = nil
}

func (a *affinity) export(name sdk.Name, now time.Time) []sdk.AffinityEntry {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []sdk.AffinityEntry
	for client, e := range a.entries {
		if left := e.until.Sub(now); left > 0 {
			all = append(all, sdk.AffinityEntry{Name: name, Client: client, Endpoint: e.endpoint, Left: left})
		}
	}
	return all
}

// forget deletes the entries for which gone is true. The caller holds mu.
func (a *affinity) forget(gone func(entry) bool) {
	for client, e := range a.entries {
		if gone(e) {
			delete(a.entries, client)
		}
	}
}
