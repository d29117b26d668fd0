// SPDX-License-Identifier: Apache-2.0

// Pointsman-dataplane-mute breaks the contract in one way: its Inspect names nothing while it does not
// serve. A host cannot swap to it.
package main

import (
	"context"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/wire"
)

type mute struct{ sdktest.Recorder }

func (m *mute) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	if m.Role() != sdk.Active {
		return nil
	}
	return m.Recorder.Inspect(ctx, tell)
}

func main() {
	d := sdk.Description{Name: "mute", Version: "0.0.0", Features: sdk.Features, Limits: []sdk.Limit{sdk.LimitDiesWithProcess}}
	m := &mute{}
	m.Describe = d
	wire.Serve(d, m)
}
