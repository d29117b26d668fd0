// SPDX-License-Identifier: Apache-2.0

package duty

import (
	"errors"
	"log/slog"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// Writer is the right to write in a mode. It is nil while another process has it:
// who has none only plans.
func Writer(book *ledger.Ledger, mode string, log *slog.Logger) (*ledger.Lock, error) {
	lock, err := book.TryLock(mode)
	if errors.Is(err, ledger.ErrLocked) {
		log.Info("only planning", "err", err)
		return nil, nil
	}
	return lock, err
}

// GiveBack gives back all that mode took of the node's parameters, and names it; a
// dry run only names it. dir has the ledger.
func GiveBack(dir, mode string, l sdk.Leftovers) ([]string, error) {
	book, err := ledger.Open(dir)
	if err != nil {
		return nil, err
	}
	if l.DryRun {
		return book.Held(mode)
	}
	return book.Release(mode)
}
