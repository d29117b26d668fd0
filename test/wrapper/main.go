// SPDX-License-Identifier: Apache-2.0

// Wrapper is a plugin that keeps a daemon, and does nothing with it: what becomes of the daemon is
// what tests look at. With UNDECLARED in its environment it starts the daemon past package helper.
package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/helper"
	"github.com/pointsman/pointsman/sdk/wire"
)

func main() {
	d := sdk.Description{Name: "wrapper", Version: "0.0.0", Features: sdk.Features}
	wire.Serve(d, &wrapper{description: d})
}

type wrapper struct {
	description sdk.Description
	state       sdk.State
	dir         string
	undeclared  *exec.Cmd
}

func (w *wrapper) Configure(_ context.Context, setup sdk.Setup) (sdk.Description, error) {
	w.state, w.dir = sdk.State{}, helper.Dir(setup.StateDir)
	return w.description, nil
}

func (w *wrapper) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if _, err := w.state.Apply(u); err != nil {
		return sdk.Result{}, err
	}
	if err := w.keepDaemon(ctx); err != nil {
		return sdk.Result{}, err
	}
	w.state.Confirm()
	return sdk.Result{}, nil
}

// keepDaemon finds the daemon that a former process left, or starts one.
func (w *wrapper) keepDaemon(ctx context.Context) error {
	const sleep, long = "/bin/sleep", "600"
	if os.Getenv("UNDECLARED") != "" {
		if w.undeclared != nil {
			return nil
		}
		w.undeclared = exec.Command(sleep, "30") // no host ends it: it ends by itself
		return w.undeclared.Start()
	}
	_, err := helper.Find(w.dir, "daemon")
	if errors.Is(err, helper.ErrNone) {
		_, err = helper.Start(ctx, w.dir, helper.Command{Name: "daemon", Path: sleep, Args: []string{long}})
	}
	return err
}

func (w *wrapper) SetRole(context.Context, sdk.Role) error { return nil }

func (w *wrapper) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	daemon, err := helper.Find(helper.Dir(l.StateDir), "daemon")
	if errors.Is(err, helper.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	what := []string{"process " + daemon.String()}
	if l.DryRun {
		return what, nil
	}
	return what, daemon.End(ctx, time.Second)
}
