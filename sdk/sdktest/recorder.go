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

// A Recorder is a Dataplane in memory: it keeps the contract, serves no packet,
// and can say of any packet where it would go. It is the fake that all tests
// use. The zero value is ready, and a Recorder is safe for concurrent use.
type Recorder struct {
	// Describe is what Configure returns; the zero value stands for everything.
	Describe sdk.Description

	// Fail, when set, is asked about each Service of an update; an error keeps
	// what served it before and goes to Result.Failed. A test's hook.
	Fail func(sdk.Service) error

	// Stall, when set, is called by Sync before it does anything. A test's hook
	// to be slow, or to fail as a whole.
	Stall func(context.Context, sdk.Update) error

	// Writer, when set, says whether the recorder has the writer's lock, and else which
	// process does (contract line 8). A recorder without the lock plans; it looks again
	// with each call, Report and Inspect, and writes what it was sent once it has the
	// lock. Nil: there is no lock. A test's hook.
	Writer func() (mine bool, holder sdk.Holder)

	mu       sync.Mutex // guards all below
	setups   []sdk.Setup
	updates  []sdk.Update
	state    sdk.State
	served   map[sdk.Name]sdk.Service // outlives a session, as a kernel would
	node     sdk.Node
	role     sdk.Role
	session  bool
	steps    uint64
	next     uint64 // of the endpoints
	affinity map[affinityKey]sdk.AffinityEntry

	lock     sdk.Lock
	holder   sdk.Holder
	written  uint64 // the revision that is served
	unserved []sdk.Failure
}

type affinityKey struct {
	name   sdk.Name
	client netip.Addr
}

// Configure begins a session.
func (r *Recorder) Configure(_ context.Context, setup sdk.Setup) (sdk.Description, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setups = append(r.setups, setup)
	r.state = sdk.State{}
	r.written, r.unserved = 0, nil
	r.session = true
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

// Sync serves the state that the update leads to.
func (r *Recorder) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if r.Stall != nil {
		if err := r.Stall(ctx, u); err != nil {
			return sdk.Result{}, err
		}
	}
	if err := ctx.Err(); err != nil {
		return sdk.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.session {
		return sdk.Result{}, fmt.Errorf("sync before Configure: %w", sdk.ErrResync)
	}
	changes, err := r.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	r.updates = append(r.updates, u)
	r.steps++
	if !r.writes() {
		r.state.Confirm()
		return sdk.Result{Planned: true, Steps: plan(changes)}, nil
	}
	if r.written < r.state.Revision() {
		changes = r.everything()
	}
	r.unserved = nil
	return sdk.Result{Failed: r.serve(changes)}, nil
}

// writes reports whether what it is sent is served, as far as the lock goes. The caller
// has the mutex.
func (r *Recorder) writes() bool {
	switch {
	case r.role == sdk.Yielded:
		r.lock, r.holder, r.written = sdk.LockReleased, sdk.Holder{}, 0
		return false
	case r.Writer == nil:
		r.lock = sdk.LockUnused
		return true
	}
	mine, holder := r.Writer()
	if !mine {
		r.lock, r.holder, r.written = sdk.LockAwaited, holder, 0
		return false
	}
	r.lock, r.holder = sdk.LockHeld, sdk.Holder{}
	return true
}

// look writes what was planned, if it may by now. The caller has the mutex.
func (r *Recorder) look() {
	if r.session && r.writes() && r.written < r.state.Revision() {
		r.unserved = r.serve(r.everything())
	}
}

// serve makes served follow the state, and returns what it could not serve.
func (r *Recorder) serve(changes sdk.Changes) []sdk.Failure {
	if r.served == nil {
		r.served = make(map[sdk.Name]sdk.Service)
	}
	r.node = r.state.Node
	var failed []sdk.Failure
	if changes.Full {
		for name := range r.served {
			if _, wanted := r.state.Services[name]; !wanted {
				delete(r.served, name)
			}
		}
	}
	for _, c := range changes.Services {
		switch {
		case c.After == nil:
			delete(r.served, c.Name)
		default:
			if err := r.sound(*c.After); err != nil {
				failed = append(failed, sdk.Failure{Name: c.Name, Err: err})
				continue
			}
			r.served[c.Name] = *c.After
		}
	}
	slices.SortFunc(failed, func(a, b sdk.Failure) int { return a.Name.Compare(b.Name) })
	r.state.Confirm(failed...)
	r.written = r.state.Revision()
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

// plan returns what would be done to follow changes, a step a line.
func plan(changes sdk.Changes) []string {
	var steps []string
	for _, c := range changes.Services {
		verb := "set"
		if c.After == nil {
			verb = "delete"
		}
		steps = append(steps, verb+" "+c.Name.String())
	}
	slices.Sort(steps)
	return steps
}

// SetRole changes the role. What was only planned is written if the role allows it.
func (r *Recorder) SetRole(_ context.Context, role sdk.Role) error {
	if !role.Known() {
		return &sdk.Refusal{Field: "role", Why: "unknown role " + role.String()}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.role = role
	r.look()
	return nil
}

// everything returns the whole state as a change.
func (r *Recorder) everything() sdk.Changes {
	all := sdk.Changes{Full: true}
	for name, s := range r.state.Services {
		all.Services = append(all.Services, sdk.Change{Name: name, After: &s})
	}
	return all
}

// Cleanup forgets everything.
func (r *Recorder) Cleanup(_ context.Context, l sdk.Leftovers) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.served))
	for name := range r.served {
		names = append(names, "service "+name.String())
	}
	slices.Sort(names)
	if !l.DryRun {
		r.served, r.affinity = nil, nil
		r.state, r.session = sdk.State{}, false
	}
	return names, nil
}

// Inspect tells what is served now.
func (r *Recorder) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	r.mu.Lock()
	r.look()
	r.mu.Unlock()
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

// Report says how far it is.
func (r *Recorder) Report() sdk.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
	report := sdk.Report{
		Progress: r.steps,
		Samples:  []sdk.Sample{{Name: "recorder_services", Value: float64(len(r.served))}},
		Lock:     r.lock, Holder: r.holder, Unserved: slices.Clone(r.unserved),
	}
	if r.lock == sdk.LockHeld {
		report.Served = r.written
	}
	return report
}

// ExportAffinity lists every entry, imported or its own.
func (r *Recorder) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	r.mu.Lock()
	entries := slices.Collect(maps.Values(r.affinity))
	r.mu.Unlock()
	for _, entry := range entries {
		if err := errors.Join(ctx.Err(), tell(entry)); err != nil {
			return err
		}
	}
	return nil
}

// ImportAffinity remembers clients' endpoints.
func (r *Recorder) ImportAffinity(_ context.Context, entries []sdk.AffinityEntry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, entry := range entries {
		r.remember(entry)
	}
	return nil
}

func (r *Recorder) remember(entry sdk.AffinityEntry) {
	if r.affinity == nil {
		r.affinity = make(map[affinityKey]sdk.AffinityEntry)
	}
	r.affinity[affinityKey{entry.Name, entry.Client}] = entry
}
