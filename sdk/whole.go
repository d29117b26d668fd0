// SPDX-License-Identifier: Apache-2.0

package sdk

import "context"

// Whole makes a Dataplane of a function that serves a whole State. It is the
// shortest way to one: the function is called after each update, gets all that is
// wanted, and finds the difference itself, or does not care. What it is given
// must not be changed, and not be kept after it returns.
//
// The function's error means that nothing was served; it is retried. Options are
// refused, and roles beyond Active and Yielded too: a function that knows no
// roles is always active, and when it has yielded it is no longer called.
// Cleanup is the function called with an empty State, unless it is a dry run.
func Whole(description Description, serve func(context.Context, State) error) Dataplane {
	return &whole{description: description, serve: serve}
}

type whole struct {
	description Description
	serve       func(context.Context, State) error
	state       State
	yielded     bool
}

func (w *whole) Configure(_ context.Context, setup Setup) (Description, error) {
	if options := string(setup.Options); options != "" && options != "{}" && options != "null" {
		return Description{}, &Refusal{Field: "options", Why: w.description.Name + " has no options", Try: "remove them from the config file"}
	}
	w.state = State{}
	w.yielded = false
	return w.description, nil
}

func (w *whole) Sync(ctx context.Context, u Update) (Result, error) {
	if _, err := w.state.Apply(u); err != nil {
		return Result{}, err
	}
	if w.yielded {
		w.state.Confirm()
		return Result{}, nil
	}
	if err := w.serve(ctx, w.state); err != nil {
		return Result{}, err
	}
	w.state.Confirm()
	return Result{}, nil
}

func (w *whole) SetRole(ctx context.Context, role Role) error {
	switch role {
	case Active:
		if !w.yielded {
			return nil
		}
		w.yielded = false
		return w.serve(ctx, w.state) // what came while yielded was not served
	case Yielded:
		w.yielded = true
		return nil
	}
	return &Refusal{Field: "role", Why: w.description.Name + " is always active and cannot be " + role.String()}
}

func (w *whole) Cleanup(ctx context.Context, l Leftovers) ([]string, error) {
	what := []string{"everything that " + w.description.Name + " serves"}
	if l.DryRun {
		return what, nil
	}
	return what, w.serve(ctx, State{})
}
