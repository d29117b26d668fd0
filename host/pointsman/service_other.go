// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import (
	"context"
	"io"
)

// asService is for Windows, where a service's process has to answer to what started it.
func asService(func(context.Context, io.Writer) error) (done bool, err error) { return false, nil }
