// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// A Recorder is a Dataplane in memory: it conforms to the contract, receives no packets, and can
// say where a packet would go. The zero value is ready. It is safe for concurrent use.
type Recorder struct {
	// Describe is the result of Configure. The zero value has all features.
	Describe sdk.Description

	// Fail returns why a Service of an update fails. Nil: none fails.
	Fail func(sdk.Service) error

	// Writer reports whether the Recorder has the writer's lock (contract line 8). Nil: there is no lock.
	Writer func() bool

	mu       sync.Mutex // guards all below
	state    sdk.State
	served   map[sdk.Name]sdk.Service // outlives a session, as a kernel would
	node     sdk.Node
	role     sdk.Role
	session  bool
	next     uint64 // of the endpoints
	affinity map[affinityKey]netip.AddrPort
}

type affinityKey struct {
	name   sdk.Name
	client netip.Addr
}

func (r *Recorder) Configure(context.Context, sdk.Setup) (sdk.Description, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.session = sdk.State{}, true
	if r.role == 0 {
		r.role = sdk.Standby
	}
	return r.description(), nil
}

func (r *Recorder) description() sdk.Description {
	d := r.Describe
	if d.Name == "" {
		d.Name, d.Version = "recorder", "1"
	}
	if d.Features == nil {
		d.Features = sdk.Features
	}
	if d.Limits == nil {
		d.Limits = []sdk.Limit{sdk.LimitDiesWithProcess}
	}
	return d
}

func (r *Recorder) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if err := ctx.Err(); err != nil {
		return sdk.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.session {
		return sdk.Result{}, fmt.Errorf("sync before Configure: %w", sdk.ErrResync)
	}
	if r.role == sdk.Yielded || r.Writer != nil && !r.Writer() {
		return sdk.Result{}, &sdk.Busy{Mode: r.description().Name}
	}
	changes, err := r.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	return sdk.Result{Failed: r.serve(changes)}, nil
}

// serve updates served from the changes, and returns the Services that failed.
func (r *Recorder) serve(changes sdk.Changes) (failed []sdk.Failure) {
	if r.served == nil {
		r.served = make(map[sdk.Name]sdk.Service)
	}
	r.node = r.state.Node
	if changes.Full {
		maps.DeleteFunc(r.served, func(name sdk.Name, _ sdk.Service) bool { _, wanted := r.state.Services[name]; return !wanted })
	}
	for _, c := range changes.Services {
		if c.After == nil {
			delete(r.served, c.Name)
		} else if err := r.sound(*c.After); err != nil {
			failed = append(failed, sdk.Failure{Name: c.Name, Err: err})
		} else {
			r.served[c.Name] = *c.After
		}
	}
	r.state.Confirm(failed...)
	return failed
}

func (r *Recorder) sound(s sdk.Service) error {
	if err := s.Check(); err != nil {
		return &sdk.Refusal{Field: "service", Why: err.Error()}
	}
	if r.Fail != nil {
		return r.Fail(s)
	}
	return nil
}

func (r *Recorder) SetRole(_ context.Context, role sdk.Role) error {
	if !role.Known() {
		return &sdk.Refusal{Field: "role", Why: "unknown role " + role.String()}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.role = role
	return nil
}

func (r *Recorder) Cleanup(_ context.Context, l sdk.Leftovers) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name := range r.served {
		names = append(names, "service "+name.String())
	}
	if !l.DryRun {
		r.served, r.affinity = nil, nil
		r.state, r.session = sdk.State{}, false
	}
	return names, nil
}

func (r *Recorder) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	for _, s := range r.Services() {
		for _, f := range s.Frontends {
			served := sdk.Served{Name: s.Name, Frontend: f}
			for _, ep := range s.Endpoints(f.Policy) {
				served.Endpoints = append(served.Endpoints, ep.Addr)
			}
			if err := errors.Join(ctx.Err(), tell(served)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Services returns what is served now, sorted by name.
func (r *Recorder) Services() []sdk.Service {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.served), func(a, b sdk.Service) int { return a.Name.Compare(b.Name) })
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

// Send opens a new connection: it chooses an endpoint in turn, or by the client's affinity, and
// returns the address that the endpoint would see.
func (r *Recorder) Send(from sdk.Caller, to netip.AddrPort, protocol sdk.Protocol) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.role != sdk.Active {
		return Answer{}
	}
	o := Where(maps.Values(r.served), r.node, from, to, protocol)
	if o.Unserved || o.Verdict != sdk.Forward {
		return Answer{Verdict: o.Verdict}
	}
	svc, _, _ := Find(maps.Values(r.served), r.node, to, protocol)
	key := affinityKey{svc.Name, from.Addr}
	ep := r.affinity[key]
	if svc.Affinity == 0 || !slices.Contains(o.Endpoints, ep) {
		ep = o.Endpoints[r.next%uint64(len(o.Endpoints))]
		r.next++
	}
	if r.affinity == nil {
		r.affinity = make(map[affinityKey]netip.AddrPort)
	}
	r.affinity[key] = ep
	client := from.Addr
	if o.Masquerades(ep) {
		client = first(r.node, svc.Name.Family)
	}
	return Answer{Verdict: sdk.Forward, Endpoint: ep, Client: client}
}

// Forgets implements contract line 9: it is true for a UDP flow to a former or current frontend
// whose endpoint does not serve any more.
func (r *Recorder) Forgets(to netip.AddrPort, protocol sdk.Protocol, endpoint netip.AddrPort) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	svc, _, ok := Find(maps.Values(r.served), r.node, to, protocol)
	if protocol != sdk.UDP || r.role != sdk.Active {
		return false
	}
	if !ok {
		return true
	}
	serving := slices.Clone(svc.Serving)
	for _, ep := range svc.Reachable() {
		serving = append(serving, ep.Addr.Addr())
	}
	return !slices.Contains(serving, endpoint.Addr())
}
