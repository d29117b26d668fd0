// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"slices"
)

// Whole makes a Dataplane of a function that serves a whole State. It is the
// shortest way to one: the function is called after each update, gets all that is
// wanted, and finds the difference itself, or does not care. What it is given
// must not be changed, and not be kept after it returns.
//
// The function's error means that nothing was served; it is retried. Options are
// refused. Roles need no care of the function's: in Standby and Draining it is
// given a State without Services, and when it has yielded it is no longer called.
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
func Whole(description Description, serve func(context.Context, State) error) Dataplane {
	w := &whole{description: description, serve: serve, role: Active}
	if slices.Contains(description.Limits, LimitDiesWithProcess) {
		w.role, w.clean, w.dies = Standby, true, true
	}
	return w
}

type whole struct {
	description Description
	serve       func(context.Context, State) error
	state       State
	role        Role
	clean       bool // nothing is served, and nothing was left
	dies        bool // with the process, all that it serves
}

func (w *whole) Configure(_ context.Context, setup Setup) (Description, error) {
	if options := string(setup.Options); options != "" && options != "{}" && options != "null" {
		return Description{}, &Refusal{Field: "options", Why: w.description.Name + " has no options", Try: "remove them from the config file"}
	}
	w.state = State{}
	return w.description, nil
}

func (w *whole) Sync(ctx context.Context, u Update) (Result, error) {
	if _, err := w.state.Apply(u); err != nil {
		return Result{}, err
	}
	if err := w.follow(ctx, w.role); err != nil {
		return Result{}, err
	}
	w.state.Confirm()
	return Result{Planned: w.role == Yielded && !w.dies}, nil
}

// SetRole changes the role when the function has followed, so that asking again
// after an error asks the function again.
func (w *whole) SetRole(ctx context.Context, role Role) error {
	if !role.Known() {
		return &Refusal{Field: "role", Why: w.description.Name + " knows no " + role.String()}
	}
	if role != w.role && w.state.begun {
		if err := w.follow(ctx, role); err != nil {
			return err
		}
	}
	w.role = role
	return nil
}

// follow has the function serve what there is to serve in a role.
func (w *whole) follow(ctx context.Context, role Role) error {
	state := w.state
	switch {
	case role == Yielded && !w.dies:
		return nil
	case role != Active:
		state.Services = nil
		if w.dies {
			state.Kept = nil // nothing else holds it
		}
	}
	w.clean = false
	return w.serve(ctx, state)
}

func (w *whole) Cleanup(ctx context.Context, l Leftovers) ([]string, error) {
	if w.clean {
		return nil, nil
	}
	what := []string{"everything that " + w.description.Name + " serves"}
	if l.DryRun {
		return what, nil
	}
	if err := w.serve(ctx, State{}); err != nil {
		return what, err
	}
	w.state, w.clean = State{}, true // the next session begins with a Full
	return what, nil
}
