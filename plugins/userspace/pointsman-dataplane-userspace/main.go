// SPDX-License-Identifier: Apache-2.0

// Command pointsman-dataplane-userspace serves Services with sockets of its own.
// See the README one folder up; run by hand, --help says more.
package main

import (
	"github.com/pointsman/pointsman/plugins/userspace"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/sdk/wire"
)

func main() {
	wire.Serve(userspace.Description, userspace.New(ledger.Dir))
}
