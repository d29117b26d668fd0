// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ledger

import (
	"context"
	"errors"
	"os"
)

// A Lock is the writer's lock of one mode in one network namespace.
type Lock struct{}

// TryLock is not supported: only Linux has network namespaces.
func (l *Ledger) TryLock(string) (*Lock, error) { return nil, errors.ErrUnsupported }

// Lock is not supported: only Linux has network namespaces.
func (l *Ledger) Lock(context.Context, string) (*Lock, error) { return nil, errors.ErrUnsupported }

// File returns nil on this system.
func (k *Lock) File() *os.File { return nil }

// Unlock does nothing on this system.
func (k *Lock) Unlock() error { return nil }

func lockFile(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func mayWrite(string) error { return errors.ErrUnsupported }

func namespace() (string, error) { return "", errors.ErrUnsupported }
