// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"os"
	"path/filepath"
)

// Dir is the directory for notes of dataplanes. There are no ledgers on Windows. Dir outlives a
// reboot, because Windows has no folder that does not.
var Dir = filepath.Join(cmp.Or(os.Getenv("ProgramData"), `C:\ProgramData`), "Pointsman", "ledger")
