// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Whole turns a function that serves a whole State into a Dataplane, which is the simplest way
// to write one. The function is called after each update with the complete desired state, and
// computes the difference itself if it needs to. It must not modify the State or keep it after
// it returns.
//
// An error of the function means that nothing was served, and the call is retried. If only some
// Services could not be served, return Failures. Whole refuses options; use WholeOf for those.
//
// The function does not have to handle roles: in Standby and Draining it receives a State
// without Services, and while Yielded it is not called. A dataplane that declares
// LimitDiesWithProcess starts in Standby, and also receives a State without Services when it
// yields, so that its sockets become free for its successor. Any other dataplane may have left
// something in the kernel, so it starts Active. It takes no writer's lock (contract line 8), so
// it violates the contract while a second process of it runs, as during a change of its binary.
//
// A Service in State.Kept must stay as it is served, even if State.Services lacks it: a
// function that removes everything it does not receive must skip it.
//
// Cleanup calls the function with an empty State. It reports nothing if nothing can be left:
// after another Cleanup, or in a new process of a dataplane that declares LimitDiesWithProcess.
//
// With LimitOwnAddressesOnly, the function does not receive a Service while this node lacks the
// address of one of its frontends, because nothing could listen there. The Service stays as it
// is served and is reported as failed, with what to do.
func Whole(description Description, serve func(context.Context, State) error) Dataplane {
	return newWhole(description, Parts{Serve: func(ctx context.Context, _ Setup, s State) error { return serve(ctx, s) }})
}

// Failures is the error of a function that has served all Services except these.
type Failures []Failure

func (f Failures) Error() string {
	if len(f) == 1 {
		return fmt.Sprintf("%s: %v", f[0].Name, f[0].Err)
	}
	return fmt.Sprintf("%d Services failed", len(f))
}

// Parts are the functions of WholeOf. Only Serve is required.
type Parts struct {
	// Serve is the function of Whole, with the Setup of the session. For Cleanup in a process
	// that was not configured, only the Log of the Setup is set.
	Serve func(context.Context, Setup, State) error

	// Configure checks the Setup and its options when a session begins. It must only read the
	// node, and returns a *Refusal for what is not possible. Nil means that there are no
	// options.
	Configure func(context.Context, Setup) error

	// List returns what is served now in the role Active, as Inspector defines it, including
	// frontends without endpoints, whose callers are rejected. For the other roles Whole knows
	// what it would pass to Serve. List may run concurrently with Serve. If nil, the Dataplane
	// is not an Inspector, and a host cannot swap to it.
	List func(context.Context) ([]Served, error)

	// Report is that of Reporter, for example to count the connections that a host waits for
	// while draining. If nil, the Dataplane is not a Reporter.
	Report func() Report
}

// WholeOf is like Whole, with optional functions.
func WholeOf(description Description, p Parts) Dataplane {
	w := newWhole(description, p)
	switch {
	case p.List != nil && p.Report != nil:
		return struct {
			listed
			Reporter
		}{listed{w}, reporting(p.Report)}
	case p.List != nil:
		return listed{w}
	case p.Report != nil:
		return struct {
			*whole
			Reporter
		}{w, reporting(p.Report)}
	}
	return w
}

type reporting func() Report       // Parts.Report as a Reporter
func (r reporting) Report() Report { return r() }

func newWhole(description Description, p Parts) *whole {
	w := &whole{description: description, parts: p, role: Active}
	if slices.Contains(description.Limits, LimitDiesWithProcess) {
		w.role, w.clean, w.dies = Standby, true, true
	}
	return w
}

type whole struct {
	description Description
	parts       Parts
	setup       Setup
	state       State
	role        Role
	clean       bool // nothing is served, and nothing can be left
	dies        bool // it serves only while its process runs

	mu     sync.Mutex // guards the fields below: Inspect runs concurrently with other calls
	active bool
	ready  []Served // what Active would serve
}

func (w *whole) Configure(ctx context.Context, setup Setup) (Description, error) {
	if w.parts.Configure != nil {
		if err := w.parts.Configure(ctx, setup); err != nil {
			return Description{}, err
		}
	} else if options := string(setup.Options); options != "" && options != "{}" && options != "null" {
		return Description{}, &Refusal{Field: "options", Why: w.description.Name + " has no options", Try: "remove them from the config file"}
	}
	w.setup, w.state = setup, State{}
	w.setReady(nil)
	return w.description, nil
}

func (w *whole) Sync(ctx context.Context, u Update) (Result, error) {
	if w.role == Yielded {
		return Result{}, &Busy{Mode: w.description.Name}
	}
	if _, err := w.state.Apply(u); err != nil {
		return Result{}, err
	}
	failed, err := w.callServe(ctx, w.role)
	if err != nil {
		return Result{}, err
	}
	w.state.Confirm(failed...)
	w.setReady(failed)
	return Result{Failed: failed}, nil
}

// SetRole changes the role after the function has succeeded, so that a retry after an error
// calls the function again.
func (w *whole) SetRole(ctx context.Context, role Role) error {
	if !role.Known() {
		return &Refusal{Field: "role", Why: w.description.Name + " knows no " + role.String()}
	}
	if role != w.role && w.state.begun {
		if _, err := w.callServe(ctx, role); err != nil { // Services that failed in Sync will be sent again
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.role, w.active = role, role == Active
	return nil
}

// callServe calls the function with what should be served in a role, and returns the Services that
// failed.
func (w *whole) callServe(ctx context.Context, role Role) ([]Failure, error) {
	state, failed := w.servable()
	switch {
	case role == Yielded && !w.dies:
		return failed, nil
	case role != Active:
		state.Services = nil
		if w.dies {
			state.Kept = nil // nothing else serves them
		}
	}
	w.clean = false
	err := w.parts.Serve(ctx, w.setup, state)
	if some, ok := errors.AsType[Failures](err); ok {
		return append(failed, some...), nil
	}
	return failed, err
}

// servable returns the state without the Services that this node cannot serve, and a failure
// for each of those.
func (w *whole) servable() (State, []Failure) {
	state := w.state
	if !slices.Contains(w.description.Limits, LimitOwnAddressesOnly) {
		return state, nil
	}
	state.Services, state.Kept = maps.Clone(state.Services), make(map[Name]bool)
	known := make(map[netip.Addr]error)
	var failed []Failure
	for name, svc := range state.Services {
		for _, f := range svc.Frontends {
			addr := f.Addr.Addr()
			err, ok := known[addr]
			if !ok {
				err = checkOwnAddress(addr)
				known[addr] = err
			}
			if err != nil {
				delete(state.Services, name)
				state.Kept[name] = true
				failed = append(failed, Failure{name, err})
				break
			}
		}
	}
	return state, failed
}

// checkOwnAddress returns the reason why nothing can listen on an address, because the node does not have
// it, or nil.
func checkOwnAddress(addr netip.Addr) error {
	if addr.IsUnspecified() {
		return nil
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return fmt.Errorf("this node does not have the address %s: %w; try: ip address add %s dev lo", addr, err, addr)
	}
	return conn.Close()
}

func (w *whole) Cleanup(ctx context.Context, l Leftovers) ([]string, error) {
	if w.clean {
		return nil, nil
	}
	what := []string{"everything that " + w.description.Name + " serves"}
	if l.DryRun {
		return what, nil
	}
	if w.setup.Log == nil {
		w.setup.Log = slog.New(slog.DiscardHandler)
	}
	if err := w.parts.Serve(ctx, w.setup, State{}); err != nil {
		return what, err
	}
	w.state, w.clean = State{}, true // the next session will begin with a Full
	w.setReady(nil)
	return what, nil
}

// setReady stores for Inspect what the role Active would serve, without the failed Services.
func (w *whole) setReady(failed []Failure) {
	if w.parts.List == nil {
		return // there is no Inspect
	}
	without := make(map[Name]bool)
	for _, f := range failed {
		without[f.Name] = true
	}
	var ready []Served
	for name, svc := range w.state.Services {
		if without[name] {
			continue
		}
		for _, f := range svc.Frontends {
			s := Served{Name: name, Frontend: f}
			for _, ep := range svc.Endpoints(f.Policy) {
				s.Endpoints = append(s.Endpoints, ep.Addr)
			}
			ready = append(ready, s)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active, w.ready = w.role == Active, ready
}

// A listed is a whole with Parts.List, so it is an Inspector.
type listed struct{ *whole }

func (l listed) Inspect(ctx context.Context, each func(Served) error) error {
	l.mu.Lock()
	active, list := l.active, l.ready
	l.mu.Unlock()
	if active {
		var err error
		if list, err = l.parts.List(ctx); err != nil {
			return err
		}
	}
	for _, s := range list {
		if err := each(s); err != nil {
			return err
		}
	}
	return nil
}
