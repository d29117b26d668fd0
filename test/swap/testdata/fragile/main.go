// SPDX-License-Identifier: Apache-2.0

// Fragile is a plugin that dies of any Service on port 13.
package main

import (
	"context"
	"os"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

func main() {
	d := sdk.Description{Name: "fragile", Version: "0.0.0", Features: sdk.Features}
	wire.Serve(d, &fragile{description: d})
}

type fragile struct {
	description sdk.Description
	state       sdk.State
}

func (f *fragile) Configure(context.Context, sdk.Setup) (sdk.Description, error) {
	f.state = sdk.State{}
	return f.description, nil
}

func (f *fragile) Sync(_ context.Context, u sdk.Update) (sdk.Result, error) {
	if _, err := f.state.Apply(u); err != nil {
		return sdk.Result{}, err
	}
	for _, svc := range u.Set {
		for _, front := range svc.Frontends {
			if front.Addr.Port() == 13 {
				os.Exit(13)
			}
		}
	}
	f.state.Confirm()
	return sdk.Result{}, nil
}

func (f *fragile) SetRole(context.Context, sdk.Role) error { return nil }

func (f *fragile) Cleanup(context.Context, sdk.Leftovers) ([]string, error) { return nil, nil }
