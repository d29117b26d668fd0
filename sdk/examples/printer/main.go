// SPDX-License-Identifier: Apache-2.0

// Pointsman-dataplane-printer prints what the node should serve. It is the smallest possible
// plugin: start your own plugin from it.
package main

import (
	"context"
	"fmt"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

var description = sdk.Description{
	Name:     "printer",
	Version:  "0.1.0",
	Features: sdk.Features, // it serves nothing, so it has no features to exclude
	Limits:   []sdk.Limit{sdk.LimitDiesWithProcess},
}

func main() {
	wire.Serve(description, sdk.Whole(description, print))
}

// print receives the whole desired state after each change.
func print(_ context.Context, state sdk.State) error {
	fmt.Printf("%d Services\n", len(state.Services))
	for name, svc := range state.Services {
		fmt.Println(name, svc.Frontends, "->", svc.Cluster)
	}
	return nil
}
