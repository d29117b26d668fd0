// SPDX-License-Identifier: Apache-2.0

//go:build !unix && !windows

package statefile

import (
	"errors"
	"os"
)

const careful = 0

// TryLock is not supported here.
func TryLock(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// settle has nothing to do where directories cannot be synced.
func settle(string) error { return nil }

// Guarded has nothing to say where a mode does not say which users may write.
func Guarded(string) error { return nil }

// MakeDir makes dir, and the folders that lead to it.
func MakeDir(dir string) error { return os.MkdirAll(dir, 0o700) }
