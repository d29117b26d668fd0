// SPDX-License-Identifier: Apache-2.0

// Pointsman-dataplane-haproxy serves Services by HAProxy. It is an example of a plugin that
// wraps a daemon: HAProxy carries the connections in a process of its own, which goes on when
// the plugin's process ends, and which the next process of the plugin adopts.
//
//	Sync ─▶ want     a Service → a section of HAProxy's configuration. Pure
//	     ─▶ plan     running and wanted → commands, or a reload. Pure
//	     ─▶ apply    endpoints by HAProxy's runtime API; frontends by another process, which
//	                 inherits the listening sockets
//
// See README.md.
package main

import (
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

const name = "haproxy"

var description = sdk.Description{
	Name:     name,
	Version:  "0.1.0",
	Features: []sdk.Feature{sdk.FeatureIPv4, sdk.FeatureIPv6, sdk.FeatureSourceRanges, sdk.FeatureAffinity},
	Limits:   []sdk.Limit{sdk.LimitNoDrop, sdk.LimitNoClientAddress, sdk.LimitOwnAddressesOnly},
	Options: []byte(`{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "program": {"type": "string", "description": "HAProxy's executable; without it that of PATH"},
    "threads": {"type": "integer", "minimum": 1, "maximum": 64, "description": "HAProxy's threads; without it one for each processor"}
  }
}`),
}

func main() { wire.Serve(description, newPlugin()) }
