// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A service is one Service as connections see it. Its value is replaced whole,
// so a connection takes no lock to read it, and none at all unless clients stick.
type service struct {
	name  sdk.Name
	value atomic.Pointer[sdk.Service]
	turns [2]atomic.Uint32 // whose it is in Cluster and in Local

	mu     sync.Mutex // guards sticks and swept
	sticks map[netip.Addr]stick
	swept  int // how many were left when they were last swept
}

// A stick is the endpoint that a client keeps.
type stick struct {
	endpoint netip.AddrPort
	until    time.Time
}

// maxSticks bounds the clients that one Service remembers. Beyond, one is
// forgotten for each that comes.
const maxSticks = 1 << 16

// newService begins each list at a turn of its own, or after a restart every
// node of a cluster would send to the same endpoint.
func newService(name sdk.Name) *service {
	s := &service{name: name}
	for i := range s.turns {
		s.turns[i].Store(rand.Uint32())
	}
	return s
}

// set makes svc the value. Clients of endpoints that are gone are forgotten.
func (s *service) set(svc sdk.Service) {
	was := s.value.Swap(&svc)
	if was == nil || was.Affinity == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if svc.Affinity == 0 {
		s.sticks = nil
		return
	}
	s.forget(func(k stick) bool { return !has(svc.Cluster, k.endpoint) && !has(svc.Local, k.endpoint) })
}

// pick chooses among the endpoints of a route that svc gave: the one that the
// client keeps, or the next in turn that is not among those tried.
func (s *service) pick(svc *sdk.Service, from []sdk.Endpoint, client netip.Addr, tried []netip.AddrPort, now time.Time) netip.AddrPort {
	if svc.Affinity == 0 {
		return s.next(svc, from, tried)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, kept := s.sticks[client]
	if !kept || !now.Before(k.until) || slices.Contains(tried, k.endpoint) || !has(from, k.endpoint) {
		k.endpoint = s.next(svc, from, tried)
	}
	k.until = now.Add(svc.Affinity)
	s.stick(client, k, now)
	return k.endpoint
}

// next is the endpoint whose turn it is. When all were tried, tried ones too.
func (s *service) next(svc *sdk.Service, from []sdk.Endpoint, tried []netip.AddrPort) netip.AddrPort {
	turn := &s.turns[0]
	if len(svc.Local) > 0 && &from[0] == &svc.Local[0] {
		turn = &s.turns[1]
	}
	var ep netip.AddrPort
	for range from {
		ep = from[turn.Add(1)%uint32(len(from))].Addr
		if !slices.Contains(tried, ep) {
			break
		}
	}
	return ep
}

// stick remembers k. The caller holds mu.
func (s *service) stick(client netip.Addr, k stick, now time.Time) {
	if s.sticks == nil {
		s.sticks = make(map[netip.Addr]stick)
	}
	if _, kept := s.sticks[client]; !kept {
		s.makeRoom(now)
	}
	s.sticks[client] = k
}

// makeRoom sweeps when there are twice as many as were left the last time, so
// that sweeping costs each client little; close to the bound, only the regular
// sweep does. The caller holds mu.
func (s *service) makeRoom(now time.Time) {
	if len(s.sticks) >= 2*s.swept+64 {
		s.forget(func(k stick) bool { return !now.Before(k.until) })
		s.swept = len(s.sticks)
	}
	for client := range s.sticks {
		if len(s.sticks) < maxSticks {
			return
		}
		delete(s.sticks, client)
	}
}

// sweep forgets the clients whose time is over.
func (s *service) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(func(k stick) bool { return !now.Before(k.until) })
	s.swept = len(s.sticks)
}

// seed remembers what another dataplane did.
func (s *service) seed(sticks []sdk.AffinityEntry, now time.Time) {
	svc := s.value.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range sticks {
		if svc.Affinity > 0 && k.Left > 0 && (has(svc.Cluster, k.Endpoint) || has(svc.Local, k.Endpoint)) {
			s.stick(k.Client, stick{k.Endpoint, now.Add(min(k.Left, svc.Affinity))}, now)
		}
	}
}

// stuck is what is remembered.
func (s *service) stuck(now time.Time) []sdk.AffinityEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []sdk.AffinityEntry
	for client, k := range s.sticks {
		if left := k.until.Sub(now); left > 0 {
			all = append(all, sdk.AffinityEntry{Name: s.name, Client: client, Endpoint: k.endpoint, Left: left})
		}
	}
	return all
}

func (s *service) forget(gone func(stick) bool) {
	for client, k := range s.sticks {
		if gone(k) {
			delete(s.sticks, client)
		}
	}
}

func has(list []sdk.Endpoint, addr netip.AddrPort) bool {
	return slices.ContainsFunc(list, func(ep sdk.Endpoint) bool { return ep.Addr == addr })
}
