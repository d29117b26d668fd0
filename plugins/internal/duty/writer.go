// SPDX-License-Identifier: Apache-2.0

package duty

import (
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// GiveBack gives back all that mode took of the node's parameters, and names it; a
// dry run only names it. dir has the ledger.
func GiveBack(dir, mode string, l sdk.Leftovers) ([]string, error) {
	shared, err := ledger.Open(dir)
	if err != nil {
		return nil, err
	}
	if l.DryRun {
		return shared.Held(mode)
	}
	return shared.Release(mode)
}
