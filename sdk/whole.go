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
)

// Whole makes a Dataplane of a function that serves a whole State. It is the
// shortest way to one: the function is called after each update, gets all that is
// wanted, and finds the difference itself, or does not care. What it is given
// must not be changed, and not be kept after it returns.
//
// The function's error means that nothing was served; it is retried. Where all but some
// Services are served, it is Failures. Options are refused: WholeOf takes them.
//
// Roles need no care of the function's: in Standby and Draining it is given a State without
// Services, and when it has yielded it is no longer called.
// One that declares LimitDiesWithProcess is in Standby until a role is set, and is
// given a State without Services too when it has yielded: what its process listens
// on is not left to its successor. Any other may have left something in the kernel,
// and begins Active; it takes no writer's lock (contract line 8), so beside a second
// process of its own, as when its binary is changed, it does not keep the contract.
//
// A Service in State.Kept is to stay as it is served, also where State.Services
// lacks it: a function that removes what it is not given leaves that alone.
//
// Cleanup is the function called with an empty State. It names nothing where
// nothing can be left: after another Cleanup, or in a new process of one that
// declares LimitDiesWithProcess.
//
// With LimitOwnAddressesOnly a Service is not given to the function as long as this node lacks
// the address of one of its frontends, so that nothing could listen there: it stays as it is
// served, and is named as failed with what to do.
func Whole(description Description, serve func(context.Context, State) error) Dataplane {
	return newWhole(description, Parts{Serve: func(ctx context.Context, _ Setup, s State) error { return serve(ctx, s) }})
}

// Failures is the error of a function that has served all but these.
type Failures []Failure

func (f Failures) Error() string {
	if len(f) == 1 {
		return fmt.Sprintf("%s: %v", f[0].Name, f[0].Err)
	}
	return fmt.Sprintf("%d Services failed", len(f))
}

// Parts are what WholeOf makes a Dataplane of. Only Serve has to be there.
type Parts struct {
	// Serve is as the function of Whole. The Setup is that of the session. For Cleanup in a process
	// that was not configured only its Log is set.
	Serve func(context.Context, Setup, State) error

	// Configure looks at the Setup, with its options, when a session begins: it only reads the node, and
	// returns a *Refusal for what cannot be. Nil: there are no options.
	Configure func(context.Context, Setup) error

	// Can says why this node cannot serve a Service, in every role. Such a one stays as it is served, and
	// is not given to Serve. Nil: all can be tried.
	Can func(Node, Service) error

	// List says what is served now, in the role Active, as Inspector wants it: also the frontends whose
	// callers are refused, with no endpoints. For the other roles it is known what Serve would be
	// given. It may be called beside Serve. Nil: the Dataplane is no Inspector,
	// and a host cannot swap to it.
	List func(context.Context) ([]Served, error)
}

// WholeOf is Whole for a function that wants more.
func WholeOf(description Description, p Parts) Dataplane {
	w := newWhole(description, p)
	if p.List == nil {
		return w
	}
	return &listed{whole: w}
}

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
	clean       bool // nothing is served, and nothing was left
	dies        bool // with the process, all that it serves
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
	return w.description, nil
}

func (w *whole) Sync(ctx context.Context, u Update) (Result, error) {
	if w.role == Yielded {
		return Result{}, &Busy{Mode: w.description.Name}
	}
	if _, err := w.state.Apply(u); err != nil {
		return Result{}, err
	}
	failed, err := w.follow(ctx, w.role)
	if err != nil {
		return Result{}, err
	}
	w.state.Confirm(failed...)
	return Result{Failed: failed}, nil
}

// SetRole changes the role when the function has followed, so that asking again
// after an error asks the function again.
func (w *whole) SetRole(ctx context.Context, role Role) error {
	if !role.Known() {
		return &Refusal{Field: "role", Why: w.description.Name + " knows no " + role.String()}
	}
	if role != w.role && w.state.begun {
		if _, err := w.follow(ctx, role); err != nil { // what failed in Sync is offered again
			return err
		}
	}
	w.role = role
	return nil
}

// follow has the function serve what there is to serve in a role, and returns what it could not.
func (w *whole) follow(ctx context.Context, role Role) ([]Failure, error) {
	state, failed := w.possible()
	switch {
	case role == Yielded && !w.dies:
		return failed, nil
	case role != Active:
		state.Services = nil
		if w.dies {
			state.Kept = nil // nothing else holds it
		}
	}
	w.clean = false
	err := w.parts.Serve(ctx, w.setup, state)
	if some, ok := errors.AsType[Failures](err); ok {
		return append(failed, some...), nil
	}
	return failed, err
}

// possible is the state without what this node cannot serve, which stays as it is, and what that is.
func (w *whole) possible() (State, []Failure) {
	state := w.state
	can := w.can()
	if can == nil {
		return state, nil
	}
	var failed []Failure
	services, kept := maps.Clone(state.Services), maps.Clone(state.Kept)
	for name, svc := range state.Services {
		err := can(state.Node, svc)
		if err == nil || kept[name] {
			continue
		}
		if kept == nil {
			kept = make(map[Name]bool)
		}
		delete(services, name)
		kept[name] = true
		failed = append(failed, Failure{name, err})
	}
	slices.SortFunc(failed, func(a, b Failure) int { return a.Name.Compare(b.Name) })
	state.Services, state.Kept = services, kept
	return state, failed
}

// can returns what says why a Service cannot be served, as of now; nil: all can be tried.
func (w *whole) can() func(Node, Service) error {
	if !slices.Contains(w.description.Limits, LimitOwnAddressesOnly) {
		return w.parts.Can
	}
	known := make(map[netip.Addr]error)
	return func(n Node, s Service) error {
		for _, f := range s.Frontends {
			addr := f.Addr.Addr()
			err, ok := known[addr]
			if !ok {
				err = own(addr)
				known[addr] = err
			}
			if err != nil {
				return err
			}
		}
		if w.parts.Can != nil {
			return w.parts.Can(n, s)
		}
		return nil
	}
}

// own says why nothing can listen on an address, if so: the node does not have it.
func own(addr netip.Addr) error {
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
	w.state, w.clean = State{}, true // the next session begins with a Full
	return what, nil
}
