// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package nftnl

import (
	"context"
	"errors"
)

// A Conn exists only on Linux: elsewhere Dial fails.
type Conn struct{}

// Dial returns an error.
func Dial() (*Conn, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*Conn) Close() error { return nil }

// Send returns an error.
func (*Conn) Send(context.Context, *Batch) error { return errors.ErrUnsupported }

func (*Conn) ask(context.Context, uint16, uint16, Family, []string, func([]byte)) error {
	return errors.ErrUnsupported
}
