// SPDX-License-Identifier: Apache-2.0

// Command pointsman-dataplane-ipvs serves Services with the kernel's own load
// balancer. See the README one folder up; run by hand, --help says more.
package main

import (
	"github.com/pointsman/pointsman/plugins/ipvs"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/sdk/wire"
)

func main() {
	wire.Serve(ipvs.Description, ipvs.New(ledger.Dir))
}
