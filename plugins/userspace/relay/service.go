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

// MaxAffinity is the maximum number of clients of one Service that keep an endpoint. If there are more, another client
// loses its endpoint.
const MaxAffinity = 1 << 16

// A Service is one Service as connections see it. Its value is replaced as a whole, so a connection takes no lock to read
// it. Only with affinity does a connection take a lock.
type Service struct {
	name    sdk.Name
	value   atomic.Pointer[sdk.Service]
	cursors [2]atomic.Uint32 // of the round robin in Cluster and in Local

	mu       sync.Mutex // guards affinity
	affinity map[netip.Addr]entry
}

// An entry is the endpoint that a client keeps by affinity.
type entry struct {
	endpoint netip.AddrPort
	until    time.Time
}

// NewService returns a Service whose value is svc. The round robins begin at a random endpoint. Otherwise all nodes of a
// cluster would send to the same one after a restart.
func NewService(svc sdk.Service) *Service {
	s := &Service{name: svc.Name, affinity: make(map[netip.Addr]entry)}
	for i := range s.cursors {
		s.cursors[i].Store(rand.Uint32())
	}
	s.Set(svc)
	return s
}

// Name returns the Service's name, which does not change.
func (s *Service) Name() sdk.Name { return s.name }

// Value returns the value that was set last. The caller must not modify it.
func (s *Service) Value() *sdk.Service { return s.value.Load() }

// Set sets the value for new connections. Clients lose endpoints that it does not have.
func (s *Service) Set(svc sdk.Service) {
	was := s.value.Swap(&svc)
	if was != nil && was.Affinity > 0 {
		s.forget(func(e entry) bool { return !mayKeep(&svc, e.endpoint) })
	}
}

// ExpireAffinity removes the entries that have expired.
func (s *Service) ExpireAffinity(now time.Time) {
	s.forget(func(e entry) bool { return !now.Before(e.until) })
}

// forget removes the entries for which gone returns true.
func (s *Service) forget(gone func(entry) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.affinity, func(_ netip.Addr, e entry) bool { return gone(e) })
}

// ExportAffinity returns the endpoint of each client.
func (s *Service) ExportAffinity(now time.Time) (all []sdk.AffinityEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for client, e := range s.affinity {
		if left := e.until.Sub(now); left > 0 {
			all = append(all, sdk.AffinityEntry{Name: s.name, Client: client, Endpoint: e.endpoint, Left: left})
		}
	}
	return all
}

// ImportAffinity adds the entries whose endpoints the Service has, if it has affinity. None lasts longer than the affinity.
func (s *Service) ImportAffinity(entries []sdk.AffinityEntry, now time.Time) {
	svc := s.Value()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if e.Left > 0 && mayKeep(svc, e.Endpoint) {
			s.keepLocked(e.Client, entry{e.Endpoint, now.Add(min(e.Left, svc.Affinity))})
		}
	}
}

// keepLocked sets the endpoint of a client.
func (s *Service) keepLocked(client netip.Addr, e entry) {
	for other := range s.affinity {
		if _, kept := s.affinity[client]; kept || len(s.affinity) < MaxAffinity {
			break
		}
		delete(s.affinity, other)
	}
	s.affinity[client] = e
}

// pick chooses an endpoint from a route of svc: the one that the client keeps, or the next one of the round robin. It
// prefers endpoints that were not tried.
func (s *Service) pick(svc *sdk.Service, from []sdk.Endpoint, client netip.Addr, tried []netip.AddrPort, now time.Time) netip.AddrPort {
	if svc.Affinity == 0 {
		return s.next(svc, from, tried)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, kept := s.affinity[client]
	if !kept || !now.Before(e.until) || slices.Contains(tried, e.endpoint) || !has(from, e.endpoint) {
		e.endpoint = s.next(svc, from, tried)
	}
	e.until = now.Add(svc.Affinity)
	s.keepLocked(client, e)
	return e.endpoint
}

// next returns the next endpoint of the round robin in a list that was not tried. If all were, it returns any.
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

// serves reports whether flows to ep continue, also if new ones may not go there.
func serves(svc *sdk.Service, ep netip.AddrPort) bool {
	return has(svc.Cluster, ep) || has(svc.Local, ep) || slices.Contains(svc.Serving, ep.Addr())
}

func has(list []sdk.Endpoint, addr netip.AddrPort) bool {
	return slices.ContainsFunc(list, func(ep sdk.Endpoint) bool { return ep.Addr == addr })
}
