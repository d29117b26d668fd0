// SPDX-License-Identifier: Apache-2.0

//go:build unix

package statefile

import (
	"errors"
	"os"
	"syscall"
)

// careful opens nothing but what is at that very path, and waits for no other process.
const careful = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY

// settle makes a change of a directory's names last.
func settle(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
