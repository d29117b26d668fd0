// SPDX-License-Identifier: Apache-2.0

// Command keeper is a plugin that stores what the host sends, and does nothing else. It costs what the connection to
// any plugin costs.
package main

import (
	"context"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

func main() {
	d := sdk.Description{Name: "keeper", Version: "0.0.0", Features: sdk.Features}
	wire.Serve(d, &keeper{description: d})
}

type keeper struct {
	description sdk.Description
	state       sdk.State
}

func (k *keeper) Configure(context.Context, sdk.Setup) (sdk.Description, error) {
	k.state = sdk.State{}
	return k.description, nil
}

func (k *keeper) Sync(_ context.Context, u sdk.Update) (sdk.Result, error) {
	if _, err := k.state.Apply(u); err != nil {
		return sdk.Result{}, err
	}
	k.state.Confirm()
	return sdk.Result{}, nil
}

func (k *keeper) SetRole(context.Context, sdk.Role) error { return nil }

func (k *keeper) Cleanup(context.Context, sdk.Leftovers) ([]string, error) { return nil, nil }
