// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Pointsman-dataplane-relay relays TCP connections to Services, at addresses that the node has.
// It needs no root for addresses in 127.0.0.0/8. It serves only while it runs.
//
//	main.go   the description
//	relay.go  the sockets
package main

import (
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

var description = sdk.Description{
	Name:     "relay",
	Version:  "0.1.0",
	Features: []sdk.Feature{sdk.FeatureIPv4, sdk.FeatureIPv6}, // the host withholds Services that need more
	Limits: []sdk.Limit{
		sdk.LimitNoDrop, sdk.LimitNoClientAddress, sdk.LimitAffinityPerFrontend,
		sdk.LimitOwnAddressesOnly, sdk.LimitDiesWithProcess,
	},
}

func main() { wire.Serve(description, newDataplane()) }
