// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package iptables

import (
	"context"
	"errors"
	"io"
)

// run runs nothing here: only Linux has iptables.
func (t Tool) run(context.Context, string, io.Reader, ...string) ([]byte, string, error) {
	return nil, "", errors.ErrUnsupported
}
