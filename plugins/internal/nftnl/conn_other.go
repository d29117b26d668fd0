// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package nftnl

import (
	"context"
	"errors"
)

// A Conn is what only Linux has.
type Conn struct{}

// Dial fails.
func Dial() (*Conn, error) { return nil, errors.ErrUnsupported }

// Close has nothing to close.
func (*Conn) Close() error { return nil }

// Send fails.
func (*Conn) Send(context.Context, *Batch) error { return errors.ErrUnsupported }

func (*Conn) ask(context.Context, uint16, uint16, Family, []string, func([]byte)) error {
	return errors.ErrUnsupported
}
