// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import (
	"context"
	"io"
)

// asService does nothing: only Windows services must report to a service manager in this way.
func asService(func(context.Context, io.Writer) error) (done bool, err error) { return false, nil }
