// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"

	"github.com/pointsman/pointsman/sdk"
)

// ErrLocked says that another process has the right to write. The error is a *Locked,
// which names the process.
var ErrLocked = errors.New("another process is the writer")

// Locked is the error of a lock that another process holds.
type Locked struct {
	Mode   string
	Holder sdk.Holder
}

func (e *Locked) Error() string {
	return fmt.Sprintf("lock %s, held by %s: %v", e.Mode, e.Holder, ErrLocked)
}

// Unwrap returns ErrLocked.
func (e *Locked) Unwrap() error { return ErrLocked }
