// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// Services returns what is served now, sorted by name.
func (r *Recorder) Services() []sdk.Service {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.served), func(a, b sdk.Service) int { return a.Name.Compare(b.Name) })
}

// Where says what would become of a packet now. Only an Active recorder catches
// any.
func (r *Recorder) Where(from sdk.Caller, to netip.AddrPort, protocol sdk.Protocol) Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.role != sdk.Active {
		return Outcome{Unserved: true}
	}
	return Where(maps.Values(r.served), r.node, from, to, protocol)
}

// Send opens one new connection: it chooses among the endpoints, in turn or as the
// client's affinity says, and returns the address that the endpoint would see.
func (r *Recorder) Send(from sdk.Caller, to netip.AddrPort, protocol sdk.Protocol) Answer {
	o := r.Where(from, to, protocol)
	if o.Unserved || o.Verdict != sdk.Forward {
		return Answer{Verdict: o.Verdict}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	svc, _, _ := Find(maps.Values(r.served), r.node, to, protocol)
	key := affinityKey{svc.Name, from.Addr}
	ep := r.affinity[key].Endpoint
	if svc.Affinity == 0 || !slices.Contains(o.Endpoints, ep) {
		ep = o.Endpoints[r.next%uint64(len(o.Endpoints))]
		r.next++
	}
	if svc.Affinity > 0 {
		r.remember(sdk.AffinityEntry{Name: svc.Name, Client: from.Addr, Endpoint: ep, Left: svc.Affinity})
	}
	client := from.Addr
	if o.Masquerades(ep) {
		client = first(r.node, svc.Name.Family)
	}
	return Answer{Verdict: sdk.Forward, Endpoint: ep, Client: client}
}

// Forgets follows the contract's line 9: a UDP flow to one of our frontends whose
// endpoint no longer serves, while another one does.
func (r *Recorder) Forgets(to netip.AddrPort, protocol sdk.Protocol, endpoint netip.AddrPort) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	svc, _, ok := Find(maps.Values(r.served), r.node, to, protocol)
	if !ok || protocol != sdk.UDP || r.role != sdk.Active {
		return false
	}
	serving := slices.Clone(svc.Serving)
	for _, ep := range svc.Reachable() {
		serving = append(serving, ep.Addr.Addr())
	}
	return len(serving) > 0 && !slices.Contains(serving, endpoint.Addr())
}

// Updates returns those that were taken, oldest first.
func (r *Recorder) Updates() []sdk.Update {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.updates)
}

// Setups returns the sessions that were begun, oldest first.
func (r *Recorder) Setups() []sdk.Setup {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.setups)
}

// Node returns the node as last sent.
func (r *Recorder) Node() sdk.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node
}

// Role returns the present role; zero before Configure.
func (r *Recorder) Role() sdk.Role {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.role
}

// Recorded returns a Subject whose every life is a new Recorder from make, joined by
// both ends of the wire, and asked where packets go.
func Recorded(make func() *Recorder) Subject {
	var mu sync.Mutex // guards live
	var live *Recorder
	s := InProcess((&Recorder{}).description(), func() sdk.Dataplane {
		mu.Lock()
		defer mu.Unlock()
		live = make()
		return live
	})
	s.Testbed = Said(func(sdk.Dataplane) Sender {
		mu.Lock()
		defer mu.Unlock()
		return live
	})
	return s
}
