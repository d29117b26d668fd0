// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"os"
	"path/filepath"
)

// Dir is where dataplanes on a node keep what they note beside a ledger, of which there is none
// on Windows. It outlives a reboot, too: Windows has no folder that does not.
var Dir = filepath.Join(cmp.Or(os.Getenv("ProgramData"), `C:\ProgramData`), "Pointsman", "ledger")
