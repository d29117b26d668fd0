// SPDX-License-Identifier: Apache-2.0

// Command pointsman-dataplane-iptables serves Services with the kernel's packet
// filter. See the README one folder up; run by hand, --help says more.
package main

import (
	"github.com/pointsman/pointsman/plugins/iptables"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/sdk/wire"
)

func main() {
	wire.Serve(iptables.Description, iptables.New(ledger.Dir))
}
