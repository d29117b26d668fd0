// SPDX-License-Identifier: Apache-2.0

// Command pointsman-dataplane-nftables serves Services with sets and maps of nf_tables. Run
// by hand, --help says more.
package main

import (
	"github.com/pointsman/pointsman/plugins/nftables"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/sdk/wire"
)

func main() {
	wire.Serve(nftables.Description, nftables.New(ledger.Dir))
}
