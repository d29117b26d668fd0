// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Pointsman-dataplane-relay carries TCP connections to Services, on addresses that the node
// has. It needs no root where they are of 127.0.0.0/8, and what it serves ends with it.
//
//	main.go       what it is
//	dataplane.go  what a host asks of it
//	relay.go      the sockets
package main

import (
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

var description = sdk.Description{
	Name:     "relay",
	Version:  "0.1.0",
	Features: []sdk.Feature{sdk.FeatureIPv4, sdk.FeatureIPv6}, // a Service that needs more is not sent to it
	Limits: []sdk.Limit{
		sdk.LimitNoDrop, sdk.LimitNoClientAddress, sdk.LimitAffinityPerFrontend,
		sdk.LimitOwnAddressesOnly, sdk.LimitDiesWithProcess,
	},
}

func main() { wire.Serve(description, newDataplane()) }
