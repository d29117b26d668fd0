// SPDX-License-Identifier: Apache-2.0

//go:build unix

package swap

import (
	"errors"
	"os"
)

// settle makes a change of a folder's names last.
func settle(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
