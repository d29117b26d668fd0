// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package iptables

import (
	"context"
	"errors"
	"io"

	"github.com/pointsman/pointsman/sdk"
)

// Stubs for everything that only Linux has.

func (t Tool) runInto(context.Context, io.Writer, string, []byte, ...string) (string, error) {
	return "", errors.ErrUnsupported
}

func (t Tool) check(ID, []string) (bool, error) { return false, errors.ErrUnsupported }

func (t Tool) asksLegacy(string) error { return errors.ErrUnsupported }

type entry struct {
	chain, policy string
	drops         bool
	packets       uint64
}

func eachEntry(sdk.Family, string, func(entry)) error { return errors.ErrUnsupported }

// TableSize returns an error.
func TableSize(sdk.Family, string) (Size, error) { return Size{}, errors.ErrUnsupported }
