// SPDX-License-Identifier: Apache-2.0

//go:build !unix && !windows

package statefile

import (
	"errors"
	"os"
)

const careful = 0

// TryLock is not supported on this system.
func TryLock(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// syncDir does nothing: directories cannot be synced on this system.
func syncDir(string) error { return nil }

// Guarded does nothing: on this system file modes do not say who may write.
func Guarded(string) error { return nil }

// MakeDir creates dir and its missing parents.
func MakeDir(dir string) error { return os.MkdirAll(dir, 0o700) }
