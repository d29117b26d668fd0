// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Service is one Service as connections see it. Its value is replaced whole, so a
// connection takes no lock to read it, and none at all unless the Service has affinity.
type Service struct {
	name     sdk.Name
	value    atomic.Pointer[sdk.Service]
	cursors  [2]atomic.Uint32 // of the round robin, in Cluster and in Local
	affinity affinity
}

// NewService returns a Service whose value is svc. The round robin of each of its lists
// begins at a place of its own, or after a restart every node of a cluster would send to
// the same endpoint.
func NewService(svc sdk.Service) *Service {
	s := &Service{name: svc.Name}
	for i := range s.cursors {
		s.cursors[i].Store(rand.Uint32())
	}
	s.Set(svc)
	return s
}

// Name returns the Service's name, which does not change.
func (s *Service) Name() sdk.Name { return s.name }

// Value returns what Set was called with last. It must not be changed.
func (s *Service) Value() *sdk.Service { return s.value.Load() }

// Set makes svc what new connections see. Affinity to endpoints that it does not have is
// forgotten.
func (s *Service) Set(svc sdk.Service) {
	was := s.value.Swap(&svc)
	if was != nil && was.Affinity > 0 {
		s.affinity.forget(func(e entry) bool { return !mayKeep(&svc, e.endpoint) })
	}
}

// ExpireAffinity forgets the clients whose time was over at now.
func (s *Service) ExpireAffinity(now time.Time) {
	s.affinity.forget(func(e entry) bool { return !now.Before(e.until) })
}

// ExportAffinity returns which client keeps which endpoint.
func (s *Service) ExportAffinity(now time.Time) []sdk.AffinityEntry {
	return s.affinity.export(s.name, now)
}

// ImportAffinity remembers what another dataplane exported, as far as the Service still
// has affinity and these endpoints. None of it lasts longer than the Service's affinity.
func (s *Service) ImportAffinity(entries []sdk.AffinityEntry, now time.Time) {
	svc := s.Value()
	s.affinity.mu.Lock()
	defer s.affinity.mu.Unlock()
	for _, k := range entries {
		if k.Left > 0 && mayKeep(svc, k.Endpoint) {
			s.affinity.put(k.Client, entry{k.Endpoint, now.Add(min(k.Left, svc.Affinity))})
		}
	}
}

// pick chooses among from, the endpoints of a route that svc gave: the one that the
// client keeps, or the next of the round robin that is not among those tried.
func (s *Service) pick(svc *sdk.Service, from []sdk.Endpoint, client netip.Addr, tried []netip.AddrPort, now time.Time) netip.AddrPort {
	if svc.Affinity == 0 {
		return s.next(svc, from, tried)
	}
	return s.affinity.pick(client, now, svc.Affinity,
		func(ep netip.AddrPort) bool { return !slices.Contains(tried, ep) && has(from, ep) },
		func() netip.AddrPort { return s.next(svc, from, tried) })
}

// next advances the round robin of from. When all were tried, it returns tried ones too.
func (s *Service) next(svc *sdk.Service, from []sdk.Endpoint, tried []netip.AddrPort) netip.AddrPort {
	cursor := &s.cursors[0]
	if len(svc.Local) > 0 && &from[0] == &svc.Local[0] {
		cursor = &s.cursors[1]
	}
	var ep netip.AddrPort
	for range from {
		ep = from[cursor.Add(1)%uint32(len(from))].Addr
		if !slices.Contains(tried, ep) {
			break
		}
	}
	return ep
}

// mayKeep reports whether clients of svc may keep ep.
func mayKeep(svc *sdk.Service, ep netip.AddrPort) bool {
	return svc.Affinity > 0 && (has(svc.Cluster, ep) || has(svc.Local, ep))
}

// serves reports whether ep serves svc, whatever policy or readiness say.
func serves(svc *sdk.Service, ep netip.AddrPort) bool {
	return has(svc.Cluster, ep) || has(svc.Local, ep) || slices.Contains(svc.Serving, ep.Addr())
}

func has(list []sdk.Endpoint, addr netip.AddrPort) bool {
	return slices.ContainsFunc(list, func(ep sdk.Endpoint) bool { return ep.Addr == addr })
}

// MaxAffinity bounds the clients of one Service that keep an endpoint. Beyond it, one is
// forgotten for each that comes.
const MaxAffinity = 1 << 16

// An affinity says which endpoint each client of one Service keeps.
type affinity struct {
	mu      sync.Mutex // guards all below
	entries map[netip.Addr]entry
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
	a.put(client, e)
	return e.endpoint
}

// put has a client keep an endpoint, and another one forgotten where there are too many. The caller holds mu.
func (a *affinity) put(client netip.Addr, e entry) {
	if a.entries == nil {
		a.entries = make(map[netip.Addr]entry)
	}
	for other := range a.entries {
		if _, kept := a.entries[client]; kept || len(a.entries) < MaxAffinity {
			break
		}
		delete(a.entries, other)
	}
	a.entries[client] = e
}

// forget deletes the entries for which gone is true.
func (a *affinity) forget(gone func(entry) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.entries, func(_ netip.Addr, e entry) bool { return gone(e) })
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
